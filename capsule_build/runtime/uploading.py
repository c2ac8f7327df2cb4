"""Folders and archives of this machine as a tar for an environment.

What is uploaded is a person's own tree: permissions, times and symlinks are kept. The owner is the user of
the environment; set-user-id bits go. A name that leads out of the tree is refused, and so is what is neither
a file, a folder nor a symlink.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from io import BytesIO
from typing import IO, TYPE_CHECKING, Final

from .errors import InputError
from .tarheaders import BLOCK_BYTES, padding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHUNK_BYTES: Final = 1 << 20
_PERMISSIONS: Final = 0o777
_ZIP_TIME: Final = 315532800.0
"""1980-01-01, the first day that a zip archive can name: for members whose own time isn't read."""


@dataclass(frozen=True)
class _Item:
    """One file, folder or symlink of a tree."""

    name: str
    type: bytes
    mode: int
    mtime: float
    size: int = 0
    target: str = ""
    content: IO[bytes] | None = None


def tree_tar(source: Path, user: int, group: int) -> Iterator[bytes]:
    """Yield a tar, in pieces, of what is in a folder or an archive.

    Args:
        source: A folder, or a tar (also compressed by gzip, bzip2 or xz) or zip archive.
        user: Who owns all of it.
        group: Their group.

    Raises:
        InputError: It can't be read, or holds what isn't taken.
    """
    links: set[str] = set()
    seen = False
    try:
        for item in _items(source):
            seen = True
            _check_parents(source, item.name, links)
            if item.type == tarfile.SYMTYPE:
                links.add(item.name)
            header = tarfile.TarInfo(item.name)
            header.type, header.mode, header.mtime = item.type, item.mode & _PERMISSIONS, int(item.mtime)
            header.size, header.linkname, header.uid, header.gid = item.size, item.target, user, group
            yield header.tobuf(tarfile.PAX_FORMAT)
            if item.content is not None:
                with item.content as content:
                    yield from _exactly(source, item, content)
    except (OSError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"'{source}' can't be uploaded: {error}.") from error
    if not seen:
        raise InputError(f"'{source}' can't be uploaded: nothing is in it.")
    yield bytes(2 * BLOCK_BYTES)


def _items(source: Path) -> Iterator[_Item]:
    if source.is_dir():
        return _folder_items(source)
    if zipfile.is_zipfile(source):
        return _zip_items(source)
    return _tar_items(source)


def _folder_items(source: Path) -> Iterator[_Item]:
    pending = [source]
    while pending:
        for entry in sorted(os.scandir(pending.pop()), key=lambda entry: entry.name):
            name = os.path.relpath(entry.path, source)
            info = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                target = os.readlink(entry.path)  # noqa: PTH115 (the target as it stands, not made a path)
                yield _Item(name, tarfile.SYMTYPE, _PERMISSIONS, info.st_mtime, target=target)
            elif entry.is_dir():
                yield _Item(name, tarfile.DIRTYPE, info.st_mode, info.st_mtime)
                pending.append(source / name)
            elif stat.S_ISREG(info.st_mode):
                content = (source / name).open("rb")
                yield _Item(name, tarfile.REGTYPE, info.st_mode, info.st_mtime, info.st_size, "", content)
            else:
                raise _refused(source, name, "is neither a file, a folder nor a symlink")


def _tar_items(source: Path) -> Iterator[_Item]:
    with tarfile.open(source) as archive:
        for member in archive:
            name = _plain(source, member.name)
            if not name:
                continue
            if member.issym():
                yield _Item(name, tarfile.SYMTYPE, _PERMISSIONS, member.mtime, target=member.linkname)
            elif member.isdir():
                yield _Item(name, tarfile.DIRTYPE, member.mode, member.mtime)
            elif member.isreg() or member.islnk():
                # A hard link is written as the file that it is.
                content = archive.extractfile(member)
                if content is None:
                    raise _refused(source, name, "is a hard link to what is no file")
                size = content.seek(0, os.SEEK_END)
                content.seek(0)
                yield _Item(name, tarfile.REGTYPE, member.mode, member.mtime, size, "", content)
            else:
                raise _refused(source, name, "is neither a file, a folder nor a symlink")


def _zip_items(source: Path) -> Iterator[_Item]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            name = _plain(source, member.filename)
            mode = member.external_attr >> 16
            if not name:
                continue
            if stat.S_ISLNK(mode):
                target = os.fsdecode(archive.read(member))
                yield _Item(name, tarfile.SYMTYPE, _PERMISSIONS, _ZIP_TIME, target=target)
            elif member.is_dir():
                yield _Item(name, tarfile.DIRTYPE, mode or 0o755, _ZIP_TIME)
            else:
                data = archive.read(member)
                yield _Item(name, tarfile.REGTYPE, mode or 0o644, _ZIP_TIME, len(data), content=BytesIO(data))


def _exactly(source: Path, item: _Item, content: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's bytes, as many as its header says, and the padding behind them."""
    left = item.size
    while left:
        chunk = content.read(min(left, _CHUNK_BYTES))
        if not chunk:
            raise _refused(source, item.name, "became shorter while it was read")
        left -= len(chunk)
        yield chunk
    yield padding(item.size)


def _plain(source: Path, name: str) -> str:
    """Return a member's name without what says nothing; it must stay inside."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name:
        raise _refused(source, name, "leads out of the tree")
    return "/".join(parts)


def _check_parents(source: Path, name: str, links: set[str]) -> None:
    """Check that a member doesn't lie behind a symlink, or takes the place of one."""
    parts = name.split("/")
    for end in range(1, len(parts) + 1):
        if "/".join(parts[:end]) in links:
            raise _refused(source, name, "lies behind a symlink of the same tree")


def _refused(source: Path, name: str, why: str) -> InputError:
    return InputError(f"'{source}' can't be uploaded: {name!a} {why}.")
