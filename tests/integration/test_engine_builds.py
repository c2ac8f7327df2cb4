"""Both engines build: without a network, from layers that are there, and leaving nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from capsule_build.engine import LABEL, BuildError, Engine
from capsule_build.engine.docker import DockerEngine
from capsule_build.engine.podman import PodmanEngine
from tests.integration.engines import build, containers_of, eventually, interfaces, write_context
from tests.integration.ground import processes_with

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_a_build_step_sees_the_loopback_interface_and_no_other(engine: Engine, tmp_path: Path) -> None:
    host = interfaces(Path("/proc/net/dev").read_text())
    assert host > {"lo"}, "this machine has no other interface, so the test could not fail"
    context = write_context(tmp_path / "c", 'RUN ["/bin/busybox", "cat", "/proc/net/dev"]')
    _, lines = build(engine, context, use_cache=False)
    table = [line for line in lines if "lo:" in line or any(f"{name}:" in line for name in host)]
    assert interfaces("\n".join(table)) == {"lo"}


def test_a_build_step_gets_no_proxy_of_the_callers(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    _, lines = build(engine, write_context(tmp_path / "c", 'RUN ["/bin/busybox", "env"]'), use_cache=False)
    assert any(line.startswith("HOME=") for line in lines)
    assert not [line for line in lines if "proxy" in line.lower()]


def test_log_lines_come_while_the_build_runs(engine: Engine, tmp_path: Path) -> None:
    script = "echo first-line; sleep 2; echo second-line"
    context = write_context(tmp_path / "c", f'RUN ["/bin/busybox", "sh", "-c", "{script}"]')
    seen: dict[str, float] = {}

    def note(line: str) -> None:
        seen[line] = time.monotonic()

    engine.build(context, tag=None, labels={}, use_cache=False, on_line=note)
    assert seen["second-line"] - seen["first-line"] > 1


def test_a_failing_step_is_named_with_what_it_printed_and_leaves_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    before = containers_of(engine)
    context = write_context(
        tmp_path / "c",
        'RUN ["/bin/busybox", "true"]',
        'RUN ["/bin/busybox", "sh", "-c", "echo what-went-wrong >&2; exit 7"]',
    )
    with pytest.raises(BuildError) as caught:
        build(engine, context)
    assert "exit 7" in caught.value.step
    assert "what-went-wrong" in caught.value.log_tail
    assert "what-went-wrong" in str(caught.value)
    assert caught.value.exit_code == 1
    assert containers_of(engine) == before


def test_the_container_of_a_failing_step_is_kept_where_asked(engine: Engine, tmp_path: Path) -> None:
    before = containers_of(engine)
    context = write_context(
        tmp_path / "c", 'RUN ["/bin/busybox", "sh", "-c", "echo evidence > /left; exit 7"]'
    )
    with pytest.raises(BuildError) as caught:
        build(engine, context, keep=True)
    assert caught.value.kept
    for kept in caught.value.kept:
        assert [item for item in containers_of(engine) if item.startswith(kept)]
        assert kept in (caught.value.hint or "")
        engine.remove_container(kept)
    assert containers_of(engine) == before


def test_a_broken_dockerfile_is_a_build_error(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPPY a b\n")
    with pytest.raises(BuildError, match=r"(?i)coppy"):
        build(engine, tmp_path)


def test_layers_are_reused_whatever_the_times_and_modes_of_the_files(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    context = write_context(folder, "COPY data /data", 'RUN ["/bin/busybox", "sh", "-c", "date +%N > /made"]')
    (folder / "data").write_text(f"{time.time()}")
    first, _ = build(engine, context)
    (folder / "data").chmod(0o600)
    os.utime(folder / "data", (1, 1))
    again, _ = build(engine, context)
    assert again == first
    fresh, _ = build(engine, context, use_cache=False)
    assert fresh != first


def test_a_built_image_has_its_name_and_carries_labels(engine: Engine, tmp_path: Path) -> None:
    made, _ = build(engine, write_context(tmp_path / "c"), tag="capsule-test/named:1", labels={"a.b": "c d"})
    assert engine.has_image("capsule-test/named:1")
    if isinstance(engine, DockerEngine):
        labels = engine._client.inspect_image(made)["Config"]["Labels"]  # type: ignore[no-untyped-call]
    else:
        assert isinstance(engine, PodmanEngine)
        labels = engine._api._client.api.get(f"/images/{made}/json").json()["Labels"]
    assert {"a.b": "c d", LABEL: "1"}.items() <= labels.items()
    engine.remove_image("capsule-test/named:1")
    assert not engine.has_image("capsule-test/named:1")
    engine.remove_image("capsule-test/named:1")


def test_pruning_removes_what_carries_the_label_and_nothing_else(
    engine: Engine, bare_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under a label of its own: what carries the project's is kept from one run of the tests to the next.
    label = f"{LABEL}.pruning"
    for module in ("docker", "podman"):
        monkeypatch.setattr(f"capsule_build.engine.{module}.LABEL", label)
    context = write_context(tmp_path / "c", 'RUN ["/bin/busybox", "sh", "-c", "date +%N > /made"]')
    dockerfile = context / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(LABEL, label))
    first, _ = build(engine, context)
    assert build(engine, context)[0] == first
    engine.prune_build_cache()
    assert not engine.has_image(first)
    assert engine.has_image(bare_image)
    assert build(engine, context)[0] != first


_LARGE = """
import sys
from pathlib import Path
from capsule_build.engine import ContainerSpec, container, select_engine
name, context = sys.argv[1:]
with select_engine(name, say=print) as engine:
    image = engine.build(Path(context), tag=None, labels={}, use_cache=False, on_line=lambda line: None)
    with container(engine, ContainerSpec(image=image, argv=("/none",))) as made:
        total = sum(len(chunk) for chunk in engine.copy_out(made, "/large"))
        with open(Path(context) / "copy.tar", "wb") as copy:
            copy.writelines(engine.copy_out(made, "/large"))
        with open(Path(context) / "copy.tar", "rb") as copy:
            engine.copy_in(made, "/", iter(lambda: copy.read(65536), b""))
    engine.remove_image(image)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(total, int(peak) // 1024)
"""


def test_a_large_context_and_archive_pass_through_little_memory(engine: Engine, tmp_path: Path) -> None:
    size = 200 << 20
    context = tmp_path / "c"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY large /large\n")
    with (context / "large").open("wb") as stream:
        stream.truncate(size)
    result = subprocess.run(
        [sys.executable, "-c", _LARGE, engine.name, str(context)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    total, peak_mebibytes = map(int, result.stdout.split())
    assert total >= size
    assert peak_mebibytes < 150


_BUILD = """
import sys
from pathlib import Path
from capsule_build.engine import select_engine
with select_engine(sys.argv[1], say=print) as engine:
    engine.build(Path(sys.argv[2]), tag=None, labels={}, use_cache=False, on_line=print)
"""


def test_an_interrupted_build_leaves_no_container_and_no_process(engine: Engine, tmp_path: Path) -> None:
    check_that_a_build_ends(engine, tmp_path, signal.SIGINT)


def test_docker_ends_a_build_whose_caller_was_killed(docker_engine: Engine, tmp_path: Path) -> None:
    check_that_a_build_ends(docker_engine, tmp_path, signal.SIGKILL)


def check_that_a_build_ends(engine: Engine, tmp_path: Path, ending: signal.Signals) -> None:
    before = containers_of(engine)
    seconds = str(98762 + ending)
    context = write_context(tmp_path / "c", f'RUN ["/bin/busybox", "sleep", "{seconds}"]')
    child = subprocess.Popen(
        [sys.executable, "-c", _BUILD, engine.name, str(context)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: bool(processes_with(seconds)), 60)
        child.send_signal(ending)
        _, stderr = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    if ending is signal.SIGINT:
        assert b"KeyboardInterrupt" in stderr
    assert eventually(lambda: not processes_with(seconds))
    assert eventually(lambda: containers_of(engine) == before)
