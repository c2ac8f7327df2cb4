"""A program whose time is over is ended with all that it started, also what left its process group."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from capsule_build.runtime.ending import VARIABLE, run_in_time
from capsule_build.runtime.local import LocalEnvironment
from capsule_build.runtime.process import CommandError

DETACHES = 'setsid sh -c \'echo $$ >"$1"; sleep 981; :\' sh "$1" & sleep 982; :'


def test_what_ends_in_time_is_left_alone() -> None:
    result = run_in_time(
        LocalEnvironment(), ["/bin/sh", "-c", f"echo ${VARIABLE} $A"], env={"A": "b"}, timeout=20
    )
    token, a = result.text.split()
    assert (result.code, len(token), a) == (0, 32, "b")


@pytest.mark.parametrize("value", ["plain", "two\nlines"])
def test_what_does_not_end_in_time_is_ended_with_its_children(tmp_path: Path, value: str) -> None:
    noted = tmp_path / "process"
    with pytest.raises(CommandError, match="didn't end within 1 s"):
        run_in_time(
            LocalEnvironment(), ["/bin/sh", "-c", DETACHES, "sh", str(noted)], env={"A": value}, timeout=1
        )
    assert_ends(int(noted.read_text()))


def test_what_is_interrupted_is_ended_with_its_children(tmp_path: Path) -> None:
    noted = tmp_path / "process"

    def interrupt() -> None:
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    argv = ["/bin/sh", "-c", DETACHES, "sh", str(noted)]
    with pytest.raises(KeyboardInterrupt):
        run_in_time(LocalEnvironment(), argv, env=None, timeout=60)
    thread.join()
    assert_ends(int(noted.read_text()))


def assert_ends(process: int) -> None:
    deadline = time.monotonic() + 10
    while is_running(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(process)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
