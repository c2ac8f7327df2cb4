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
    try:
        with tarfile.open(fileobj=_Reader(iter(stream)), mode="r|", bufsize=CHUNK_BYTES) as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts
                if PurePosixPath(member.name).is_absolute() or ".." in parts:
                    raise ContractError(f"The build's result has a member '{member.name}' outside of it.")
                if len(parts) > 1:
                    _write(archive, member, tree.joinpath(*parts[1:]), tree)
    except tarfile.TarError as error:
        raise CapsuleError(f"The engine's copy of the build's result is damaged: {error}.") from error


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path, tree: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.issym():
        path.symlink_to(member.linkname)
    elif member.islnk():
        shutil.copy2(tree.joinpath(*PurePosixPath(member.linkname).parts[1:]), path)
    elif member.isreg():
        source = archive.extractfile(member)
        if source is None:
            raise ContractError(f"The build's result has a file '{member.name}' without content.")
        mode = 0o755 if member.mode & 0o100 else 0o644
        with path.open("xb") as target:
            shutil.copyfileobj(source, target, CHUNK_BYTES)
            os.fchmod(target.fileno(), mode)
    else:
        raise ContractError(
            f"The build's result has a member '{member.name}' of a kind that a bundle can't hold."
        )


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
