"""The lock of an environment."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import TargetError
from capsule_build.runtime.locks import lock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("capsule_build.runtime.locks._FOLDER", f"{tmp_path}/locks-{{uid}}")
    return tmp_path / f"locks-{os.geteuid()}"


def test_a_lock_leaves_nothing(folder: Path) -> None:
    with lock("a"):
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []
    assert folder.stat().st_mode & 0o777 == 0o700


def test_different_environments_do_not_wait_for_each_other(folder: Path) -> None:
    with lock("a", timeout=0.1), lock("b", timeout=0.1):
        pass


def test_whoever_waits_too_long_is_told(folder: Path) -> None:
    with (
        lock("a"),
        pytest.raises(TargetError, match="a: another process has been installing here"),
        lock("a", timeout=0.05),
    ):
        raise AssertionError


def test_one_holds_it_at_a_time(folder: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(20):
            with lock("a"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_the_kernel_takes_it_from_a_process_that_dies(folder: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with lock("a"):
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    with lock("a", timeout=1):
        pass


@pytest.mark.parametrize("kind", ["symlink", "writable", "file"])
def test_a_squatted_folder_of_locks_is_refused(folder: Path, kind: str) -> None:
    if kind == "symlink":
        folder.symlink_to(folder.parent)
    elif kind == "file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(TargetError, match="is a symlink, another user's, or writable"), lock("a"):
        raise AssertionError
