"""A build context as a tar stream: never in memory, never in a temporary file."""

from __future__ import annotations

import os
import stat
import tarfile
from typing import TYPE_CHECKING, Final

from ..runtime.errors import UsageError
from ..runtime.files import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MTIME: Final = 315532800
"""Each member's time (1980-01-01). Engines compare contents; Podman's cache also compares times."""


def stream_context(folder: Path) -> Iterator[bytes]:
    """Yield a folder as a POSIX tar, sorted, with root as the owner, modes 0755 or 0644 and one time.

    The same contents give the same bytes whatever the umask, owner or clock of the machine. Hard links
    are sent as files of their own.

    Raises:
        UsageError: It holds something else than files, folders and symbolic links, or a file changed
            while it was read.
        OSError: Something in it can't be read.
    """
    for path, name in _walk(folder, ""):
        status = path.lstat()
        member = tarfile.TarInfo(name)
        member.mtime = _MTIME
        if stat.S_ISDIR(status.st_mode):
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            yield _header(member)
        elif stat.S_ISLNK(status.st_mode):
            member.type, member.mode, member.linkname = tarfile.SYMTYPE, 0o777, str(path.readlink())
            yield _header(member)
        elif stat.S_ISREG(status.st_mode):
            member.size = status.st_size
            member.mode = 0o755 if status.st_mode & 0o111 else 0o644
            yield _header(member)
            yield from _contents(path, member.size)
        else:
            raise UsageError(f"'{path}' is neither a file, a folder nor a symbolic link.")
    yield bytes(2 * tarfile.BLOCKSIZE)


def _walk(folder: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    with os.scandir(folder) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_folder in names:
        path = folder / name
        yield path, prefix + name
        if is_folder:
            yield from _walk(path, f"{prefix}{name}/")


def _header(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _contents(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as stream:
        while left and (chunk := stream.read(min(CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
    if left:
        raise UsageError(f"'{path}' changed while it was sent to the engine.")
    if size % tarfile.BLOCKSIZE:
        yield bytes(tarfile.BLOCKSIZE - size % tarfile.BLOCKSIZE)
