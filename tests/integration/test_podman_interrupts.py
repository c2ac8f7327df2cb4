"""Podman builds that are interrupted at any moment leave nothing, and another build beside them goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from tests.integration.capsules import containers_of
from tests.integration.engines import eventually, write_context
from tests.integration.ground import processes_with

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from capsule_build.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3600)]

SECONDS: Final = 120
LONGEST: Final = 4.0
"""A build of `stages` has come to its last step by then, unless the machine is busy."""

_BUILD: Final = """
import sys
from pathlib import Path
from capsule_build.engine import select_engine
with select_engine("podman", say=print) as engine:
    print("ready", flush=True)
    engine.build(Path(sys.argv[1]), tag=None, labels={}, use_cache=sys.argv[2] == "cache", on_line=print)
"""


def stages(marker: str) -> list[str]:
    """Stages that wait for each other, as those of a capsule: where one fails, others are on their way."""
    sleep = f'RUN ["/bin/busybox", "sh", "-c", "/bin/busybox sleep 3000; :", "{marker}"]'
    return [
        'RUN ["/bin/busybox", "true"]',
        *("FROM 0", "COPY Dockerfile /a/"),
        *("FROM 1", "COPY Dockerfile /b/", 'RUN ["/bin/busybox", "true"]', sleep),
        *("FROM 1", "COPY Dockerfile /c/", 'RUN ["/bin/busybox", "true"]'),
        *("FROM scratch", "COPY --from=2 /b /b", "COPY --from=3 /c /c"),
    ]


@contextlib.contextmanager
def building(context: Path, cache: str) -> Iterator[subprocess.Popen[str]]:
    """A build in a process of its own, whose engine is ready."""
    child = subprocess.Popen(
        [sys.executable, "-c", _BUILD, str(context), cache],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait()


def interrupt(child: subprocess.Popen[str]) -> str:
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=SECONDS)
    return said


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.soak)])
def test_builds_interrupted_at_any_moment_leave_nothing(
    podman_engine: Engine, tmp_path: Path, rounds: int
) -> None:
    beside = f"beside-{uuid.uuid4().hex}"
    other = write_context(tmp_path / "other", *stages(beside))
    context = write_context(tmp_path / "context", *stages("interrupted"))
    clean = containers_of(podman_engine)
    with building(other, "cache") as neighbour:
        # It is in the step that doesn't end, so its containers stay the same from here on.
        assert eventually(lambda: bool(processes_with(beside)), SECONDS)
        at_work = containers_of(podman_engine)
        assert at_work > clean
        for number in range(rounds):
            with building(context, "no-cache" if number % 3 == 2 else "cache") as child:
                moment = random.uniform(0, LONGEST)
                time.sleep(moment)
                said = interrupt(child)
            told = f"round {number}, after {moment:.2f} s: {said}"
            assert said.rstrip().endswith("KeyboardInterrupt"), told
            assert containers_of(podman_engine) == at_work, told
        assert neighbour.poll() is None
        assert interrupt(neighbour).rstrip().endswith("KeyboardInterrupt")
    assert containers_of(podman_engine) == clean
