"""Writes the tar stream that an engine copies out of a container as a tree on this machine."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .runtime.errors import CapsuleError, ContractError
from .runtime.files import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def collect(stream: Iterable[bytes], tree: Path) -> None:
    """Write the members of a tar stream below `tree`, without the stream's own first path component.

    Engines differ in owners, modes and times; only whether a file is executable is kept, since the packer
    decides the rest.

    Args:
        stream: The tar stream, in pieces.
        tree: An empty folder.

    Raises:
        ContractError: A member has a name or a kind that a build's result can't have.
        CapsuleError: The stream is damaged.
    """
    top = tree.resolve()
    try:
        with tarfile.open(fileobj=_Reader(iter(stream)), mode="r|", bufsize=CHUNK_BYTES) as archive:
            for member in archive:
                path = _place(top, member, member.name)
                if path != top:
                    _write(archive, member, path, top)
    except tarfile.TarError as error:
        raise CapsuleError(f"The engine's copy of the build's result is damaged: {error}.") from error


def _place(top: Path, member: tarfile.TarInfo, name: str) -> Path:
    """Return the path that a name of the stream, a member's own or the one it links to, has below `top`."""
    parts = PurePosixPath(name).parts
    path = top.joinpath(*parts[1:])
    if PurePosixPath(name).is_absolute() or ".." in parts or (path != top and _leads_away(path.parent)):
        raise ContractError(f"The build's result has a member '{member.name}' outside of it.")
    return path


def _leads_away(folder: Path) -> bool:
    """Whether a link on the way would lead a write to wherever it points."""
    try:
        return folder.resolve() != folder
    except (OSError, RuntimeError):
        # Links in a circle.
        return True


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, top: Path) -> None:
    try:
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
        elif member.issym():
            path.symlink_to(member.linkname)
        elif member.islnk():
            shutil.copy2(_place(top, member, member.linkname), path, follow_symlinks=False)
        elif member.isreg():
            _write_file(archive, member, path)
        else:
            raise ContractError(
                f"The build's result has a member '{member.name}' of a kind that a bundle can't hold."
            )
    except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise ContractError(
            f"The build's result has a member '{member.name}' that doesn't fit those before it: "
            f"{error.strerror}."
        ) from error


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = archive.extractfile(member)
    if source is None:
        raise ContractError(f"The build's result has a file '{member.name}' without content.")
    with path.open("xb") as target:
        shutil.copyfileobj(source, target, CHUNK_BYTES)
        os.fchmod(target.fileno(), 0o755 if member.mode & 0o100 else 0o644)


class _Reader(io.RawIOBase):
    """The pieces of a stream as a file that can be read once, from its start."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        taken = self._rest if size < 0 else self._rest[:size]
        self._rest = self._rest[len(taken) :]
        return bytes(taken)
