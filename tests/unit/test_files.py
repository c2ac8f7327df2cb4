"""Files get their names whole, or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.files import CHUNK_BYTES, atomic_writer, sha256_file, write_atomically

if TYPE_CHECKING:
    from pathlib import Path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_its_content_and_nothing_else_stays(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "plain", b"")
        write_atomically(tmp_path / "program", b"", mode=0o755)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "program").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), OSError(errno.ENOSPC, "full")]
)
def test_a_failure_leaves_the_old_content_and_no_temporary_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic_writer(path) as stream:
            stream.write(b"half of the n")
            raise error

    with pytest.raises(type(error)) as raised:
        fail()
    assert raised.value is error
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_the_name_is_given_only_behind_the_block(tmp_path: Path) -> None:
    with atomic_writer(tmp_path / "file") as stream:
        stream.write(b"new")
        assert not (tmp_path / "file").exists()
        (temporary,) = names(tmp_path)
        assert temporary.startswith(".file.")
        assert temporary.endswith(".part")
    assert names(tmp_path) == ["file"]


def test_a_name_that_can_not_be_given_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "file", b"new")
    assert names(tmp_path) == ["file"]


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "file", b"")


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1])
def test_a_digest_is_of_all_bytes(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "file").write_bytes(data)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(data).hexdigest()
