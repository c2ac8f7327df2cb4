"""A registry lock as a file: links to it, damage, and writers at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.lock import revoke, update_lock
from capsule_build.runtime.errors import ContractError, UsageError
from capsule_build.runtime.process import run
from capsule_build.runtime.registry import load_registry
from tests.locks import MUSL, dist, lock, variant
from tests.releases import TAG, lay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["dist", "lock"]


def test_a_lock_in_a_folder_that_is_not_there_is_an_error_of_usage(tmp_path: Path, dist: Path) -> None:
    lay(dist)
    with pytest.raises(UsageError, match="missing"):
        update_lock(tmp_path / "missing" / "registry.lock.json", dist)


def test_a_damaged_lock_is_never_overwritten(dist: Path, lock: Path) -> None:
    lay(dist)
    lock.write_text("{")
    with pytest.raises(ContractError):
        update_lock(lock, dist)
    with pytest.raises(ContractError):
        revoke(lock, TAG, MUSL, "a flaw")
    assert lock.read_text() == "{"


def test_a_link_to_a_lock_stays_one(tmp_path: Path, dist: Path, lock: Path) -> None:
    lay(dist)
    link = tmp_path / "link.json"
    link.symlink_to(lock)
    update_lock(link, dist)
    assert link.is_symlink()
    assert variant(lock).sha256 == variant(link).sha256


def test_a_link_that_leads_back_to_itself_is_no_lock(tmp_path: Path, dist: Path) -> None:
    lay(dist)
    link = tmp_path / "link.json"
    link.symlink_to(link.name)
    with pytest.raises(UsageError, match="leads back to itself"):
        update_lock(link, dist)


def test_what_writers_wait_for_is_never_written_and_may_be_anothers(
    tmp_path: Path, dist: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(dist)
    waited = lock.with_name(f".{lock.name}.lock")
    waited.write_bytes(b"somebody's")
    opened = os.open

    def as_another_user(path: Path, flags: int, mode: int = 0o777) -> int:
        if path == waited and flags & os.O_ACCMODE != os.O_RDONLY:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", as_another_user)
        update_lock(lock, dist)
    assert lock.is_file()
    assert waited.read_bytes() == b"somebody's"
    waited.unlink()
    waited.symlink_to(tmp_path / "planted")
    with pytest.raises(OSError, match="symbolic links"):
        update_lock(lock, dist)
    assert not (tmp_path / "planted").exists()


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def test_a_writer_waits_for_another_one(dist: Path, lock: Path) -> None:
    lay(dist)
    thread = threading.Thread(target=update_lock, args=(lock, dist))
    with held(lock):
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert not lock.exists()
    thread.join(10)
    assert lock.exists()


WRITER = """
import fcntl, sys
from pathlib import Path
from capsule_build.lock import revoke, update_lock
from capsule_build.runtime.platforms import Platform
lock, dist, gate = map(Path, sys.argv[1:4])
tag = dist.name
(gate.parent / f"ready-{tag}").touch()
with gate.open() as stream:
    fcntl.flock(stream, fcntl.LOCK_SH)
update_lock(lock, dist)
revoke(lock, tag, Platform("x86_64", "musl"), f"by {tag}")
"""


@pytest.mark.slow
def test_ten_writers_at_once_lose_nothing(tmp_path: Path, lock: Path) -> None:
    tags = [f"tool{number}-v1" for number in range(10)]
    digests = {}
    for tag in tags:
        (tmp_path / tag).mkdir()
        digests[tag] = lay(tmp_path / tag, tag=tag, note=tag.encode())[1]
    gate = tmp_path / "gate"
    codes = []
    with gate.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)

        def write(tag: str) -> None:
            argv = [sys.executable, "-c", WRITER, *map(str, (lock, tmp_path / tag, gate))]
            codes.append(run(argv, check=False, timeout=60).code)

        threads = [threading.Thread(target=write, args=(tag,)) for tag in tags]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 50
        while len(list(tmp_path.glob("ready-*"))) < 10 and time.monotonic() < deadline:
            time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert codes == [0] * 10
    registry = load_registry(lock)
    found = {tag: registry.capsules[tag].variants[MUSL] for tag in tags}
    assert {tag: entry.sha256 for tag, entry in found.items()} == digests
    assert {tag: entry.revoked for tag, entry in found.items()} == {tag: f"by {tag}" for tag in tags}
