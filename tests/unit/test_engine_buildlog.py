from __future__ import annotations

import pytest

from capsule_build.engine.buildlog import BuildLog
from capsule_build.engine.protocol import BuildError

DOCKER: list[dict[str, object]] = [
    {"stream": "Step 1/2 : FROM scratch"},
    {"stream": "\n"},
    {"stream": " ---> \n"},
    {"stream": 'Step 2/2 : RUN ["/x"]'},
    {"stream": "\n"},
    {"stream": " ---> Running in be002db7a141\n"},
    {"stream": "\x1b[91mpart"},
    {"stream": "ial\r\n\x1b[0m"},
]


def followed(engine: str, reports: list[dict[str, object]]) -> tuple[BuildLog, list[str]]:
    lines: list[str] = []
    log = BuildLog(engine, lines.append)
    for report in reports:
        log.add(report)
    return log, lines


def test_docker_lines_are_put_together_without_colours_or_empty_ones() -> None:
    log, lines = followed("docker", [*DOCKER, {"aux": {"ID": "sha256:abc"}}])
    assert log.finish() == "sha256:abc"
    assert lines == [
        "Step 1/2 : FROM scratch",
        " ---> ",
        'Step 2/2 : RUN ["/x"]',
        " ---> Running in be002db7a141",
        "partial",
    ]
    assert log.container == "be002db7a141"


def test_podmans_image_id_is_its_last_line() -> None:
    log, _ = followed("podman", [{"stream": "STEP 1/1: FROM scratch\n"}, {"stream": "a" * 64 + "\n"}])
    assert log.finish() == "a" * 64


@pytest.mark.parametrize(
    ("engine", "reports", "step"),
    [
        ("docker", DOCKER, 'Step 2/2 : RUN ["/x"]'),
        (
            "podman",
            [{"stream": '[1/2] STEP 3/5: RUN ["/x"]\n'}, {"stream": "partial"}],
            '[1/2] STEP 3/5: RUN ["/x"]',
        ),
    ],
)
def test_an_error_names_the_step_and_repeats_the_end_of_the_log(
    engine: str, reports: list[dict[str, object]], step: str
) -> None:
    with pytest.raises(BuildError) as caught:
        followed(engine, [*reports, {"error": "it returned 7\n", "errorDetail": {}}])
    assert caught.value.step == step
    assert caught.value.log_tail[-1] == "partial"
    assert "it returned 7\n" in caught.value.message
    assert "| partial" in caught.value.message


def test_only_the_last_lines_are_kept() -> None:
    lines: list[dict[str, object]] = [{"stream": f"line {number}\n"} for number in range(5000)]
    with pytest.raises(BuildError) as caught:
        followed("docker", [*lines, {"error": "no"}])
    assert len(caught.value.log_tail) == 40
    assert caught.value.log_tail[-1] == "line 4999"


def test_a_stream_that_ends_without_an_image_is_an_error() -> None:
    log, _ = followed("docker", [{"stream": "Step 1/1 : FROM scratch\n"}])
    with pytest.raises(BuildError, match="without an image"):
        log.finish()
