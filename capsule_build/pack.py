"""Packs a tree as a bundle: the same bytes from the same tree, on any machine.

What could differ is fixed here, and nowhere else: the order of members, owners, modes, times, the gzip header
and the compressor, whose exact version pyproject.toml names. No more than some pieces of a file are ever held
in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tarfile
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Self

from zlib_ng import zlib_ng

from .runtime.errors import CapsuleError, ContractError
from .runtime.manifest import FILE_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LEVEL: Final = 6
_BLOCK: Final = tarfile.BLOCKSIZE
_PIECE_BYTES: Final = 1 << 20
_WINDOW_BYTES: Final = 1 << zlib_ng.MAX_WBITS
"""How far back a deflate stream can refer."""
# RFC 1952: magic, deflate, no flags, no time, no extra flags, an unknown operating system.
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00" + b"\x00" * 4 + b"\x00\xff"


@dataclass(frozen=True)
class Packed:
    """What was written: the bundle's digest, its size in bytes, and how many members it has."""

    sha256: str
    size: int
    members: int


def pack(
    tree: Path,
    out: IO[bytes],
    *,
    epoch: int,
    advanced: Callable[[int], None] = lambda _bytes: None,
) -> Packed:
    """Write `tree` as a gzip tar, its manifest first and the rest sorted by the bytes of its names.

    Args:
        tree: A folder with the manifest at its top.
        out: Where to write.
        epoch: The modification time of every member, in seconds since 1970.
        advanced: Is told now and then how many bytes of the tree have been read since it was told last.

    Raises:
        ContractError: The tree holds something that a bundle can't.
        CapsuleError: The disk is full, or a file can't be read.
    """
    if not (tree / FILE_NAME).is_file():
        raise ContractError(f"The tree {tree} has no {FILE_NAME} at its top.")
    members = 0
    try:
        with _GzipWriter(out) as gzip:
            for name in _names(tree):
                member = _member(tree, name, epoch)
                gzip.write(member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))
                if member.isreg():
                    _copy(tree / name, member, gzip, advanced)
                members += 1
            # The end of an archive is two empty blocks, filled up to a record of 20 blocks (POSIX pax).
            gzip.write(b"\0" * (2 * _BLOCK))
            gzip.write(b"\0" * (-gzip.written % tarfile.RECORDSIZE))
            gzip.close()
    except OSError as error:
        raise CapsuleError(
            f"The bundle can't be packed: {error.strerror or error}"
            + (f" ({error.filename})." if error.filename else "."),
            hint="Is the disk full? The previous bundle, if there was one, is untouched.",
        ) from error
    return Packed(gzip.sha256, gzip.size, members)


def _names(tree: Path) -> Iterator[str]:
    """Yield all names below `tree`: the manifest, then every folder before what it holds."""
    yield FILE_NAME
    names: list[bytes] = []
    root = os.fsencode(tree)
    for folder, folders, files in os.walk(root):
        names.extend(os.path.relpath(os.path.join(folder, name), root) for name in (*folders, *files))  # noqa: PTH118
    for name in sorted(names):
        if name != FILE_NAME.encode():
            yield _text(name, "The file name")


def _text(name: bytes, what: str) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ContractError(f"{what} {name!r} is not UTF-8.") from error


def _member(tree: Path, name: str, epoch: int) -> tarfile.TarInfo:
    status = (tree / name).lstat()
    member = tarfile.TarInfo(name)
    member.mtime = epoch
    member.mode = 0o644
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        member.mode = 0o755
    elif stat.S_ISLNK(status.st_mode):
        member.type = tarfile.SYMTYPE
        member.mode = 0o777
        member.linkname = _text(os.fsencode((tree / name).readlink()), f"'{name}' is a link: its target")
    elif stat.S_ISREG(status.st_mode):
        member.size = status.st_size
        if status.st_mode & stat.S_IXUSR:
            member.mode = 0o755
    else:
        raise ContractError(f"'{name}' is neither a file, a folder nor a symbolic link.")
    return member


def _copy(path: Path, member: tarfile.TarInfo, gzip: _GzipWriter, advanced: Callable[[int], None]) -> None:
    size = 0
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            gzip.write(piece)
            size += len(piece)
            advanced(len(piece))
    if size != member.size:
        raise CapsuleError(f"'{member.name}' changed while it was packed.")
    gzip.write(b"\0" * (-size % _BLOCK))


class _GzipWriter:
    """One gzip member whose pieces are compressed side by side.

    Each piece is compressed by itself, with the end of the one before as its dictionary, and ends on a whole
    byte (a sync flush); together they are one deflate stream. Pieces have one size, so that the bytes depend
    neither on how the data comes nor on how many processors there are.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        workers = os.cpu_count() or 1
        self._ahead = workers + 2
        self._compressors = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="deflate")
        self._compressed: deque[Future[bytes]] = deque()
        self._digest = hashlib.sha256()
        self._crc = 0
        self._piece = bytearray()
        self._dictionary = b""
        self.written = 0
        self.size = 0
        self._emit(_GZIP_HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._compressors.shutdown(cancel_futures=True)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._piece += data
        while len(self._piece) >= _PIECE_BYTES:
            self._submit(bytes(self._piece[:_PIECE_BYTES]), zlib_ng.Z_SYNC_FLUSH)
            del self._piece[:_PIECE_BYTES]

    def close(self) -> None:
        self._submit(bytes(self._piece), zlib_ng.Z_FINISH)
        self._piece.clear()
        while self._compressed:
            self._emit(self._compressed.popleft().result())
        self._emit(struct.pack("<LL", self._crc, self.written & 0xFFFFFFFF))

    def _submit(self, piece: bytes, end: int) -> None:
        while len(self._compressed) >= self._ahead:
            self._emit(self._compressed.popleft().result())
        self._crc = zlib_ng.crc32(piece, self._crc)
        self._compressed.append(self._compressors.submit(_deflate, piece, self._dictionary, end))
        self._dictionary = piece[-_WINDOW_BYTES:]

    def _emit(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        self._out.write(data)


def _deflate(piece: bytes, dictionary: bytes, end: int) -> bytes:
    # A negative window size means raw deflate (RFC 1951): header and trailer are the writer's.
    compressor = zlib_ng.compressobj(
        LEVEL,
        zlib_ng.DEFLATED,
        -zlib_ng.MAX_WBITS,
        zlib_ng.DEF_MEM_LEVEL,
        zlib_ng.Z_DEFAULT_STRATEGY,
        dictionary,
    )
    return bytes(compressor.compress(piece) + compressor.flush(end))
