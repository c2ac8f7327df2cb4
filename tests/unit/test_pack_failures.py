"""What can't be packed is named, and leaves no thread behind."""

from __future__ import annotations

import errno
import io
import os
import socket
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from capsule_build.pack import pack
from capsule_build.runtime.errors import CapsuleError, ContractError
from capsule_build.runtime.manifest import FILE_NAME
from tests.packs import packed, tree

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["tree"]


def test_a_tree_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=FILE_NAME):
        pack(tmp_path, io.BytesIO(), epoch=0)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    # Its address is relative: a path below a test's folder can be too long for one.
    here = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a device")
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this container can't make a device")


@pytest.mark.parametrize("make", [fifo, unix_socket, device])
def test_what_is_neither_file_folder_nor_link_is_refused(tree: Path, make: Callable[[Path], None]) -> None:
    make(tree / "share" / "odd")
    with pytest.raises(ContractError, match="'share/odd' is neither a file, a folder nor a symbolic link"):
        packed(tree)


def test_a_name_that_is_not_utf_8_is_refused(tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/share/fr\xfch")).write_bytes(b"")
    with pytest.raises(ContractError, match=r"b'share/fr\\xfch' is not UTF-8"):
        packed(tree)


def test_a_link_target_that_is_not_utf_8_is_refused(tree: Path) -> None:
    (tree / "share" / "link").symlink_to(os.fsdecode(b"fr\xfch"))
    with pytest.raises(ContractError, match=r"'share/link' is a link: its target b'fr\\xfch' is not UTF-8"):
        packed(tree)


class Full(io.BytesIO):
    """A file on a disk that is full after some bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


@pytest.mark.parametrize("room", [0, 10, 100_000])
def test_a_full_disk_is_said_and_leaves_no_thread(tree: Path, room: int) -> None:
    (tree / "share" / "noise").write_bytes(os.urandom(6_000_000))
    with pytest.raises(CapsuleError, match="can't be packed: No space left on device") as raised:
        pack(tree, Full(room), epoch=0)
    assert raised.value.exit_code == 1
    assert raised.value.hint is not None
    assert "previous bundle" in raised.value.hint
    assert deflaters() == []


def test_an_interrupt_leaves_no_thread(tree: Path) -> None:
    def interrupt(_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(tree, io.BytesIO(), epoch=0, advanced=interrupt)
    assert deflaters() == []


def deflaters() -> list[str]:
    import threading

    return [thread.name for thread in threading.enumerate() if thread.name.startswith("deflate")]


def test_a_file_that_can_not_be_read_is_named(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, _mode: str) -> IO[bytes]:
        if path.name == "node.txt":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, "rb")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CapsuleError, match=r"Permission denied \(.*node\.txt\)"):
        packed(tree)


@pytest.mark.parametrize("difference", [-1000, 1000])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch, difference: int
) -> None:
    path = tree / "share" / "block"
    opened = Path.open

    def meanwhile(file: Path, _mode: str) -> IO[bytes]:
        if file == path:
            os.truncate(path, max(0, 512 + difference))
        return opened(file, "rb")

    monkeypatch.setattr(Path, "open", meanwhile)
    with pytest.raises(CapsuleError, match=r"'share/block' changed while it was packed"):
        packed(tree)
