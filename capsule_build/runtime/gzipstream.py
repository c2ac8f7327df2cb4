"""A bundle's outer layer: exactly one gzip member (RFC 1952), read as a stream.

The module `gzip` would accept several members, names, times and trailing zeros; a contract has one form.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import IO, Final

from .ahead import Ahead
from .errors import UsageError
from .inflate import error as inflate_error
from .inflate import inflater
from .limits import EXPANSION_GRACE_BYTES, MAX_EXPANSION, MAX_UNPACKED_BYTES
from .rules import BundleError, Rule

_HEADER_BYTES: Final = 10
_TRAILER_BYTES: Final = 8
_INPUT_BYTES: Final = 256 << 10
_OUTPUT_BYTES: Final = 1 << 20

_AHEAD_FROM_BYTES: Final = 1 << 20
"""Packed bytes from which a thread is worth its while."""

_METHOD_DEFLATE: Final = 8
_EXTRA_FLAGS: Final = frozenset({0, 2, 4})
"""XFL: nothing said, slowest, fastest."""
_SYSTEMS: Final = frozenset({3, 255})
"""OS: Unix (what zlib writes here), unknown (what Python's own writer says)."""


class GzipReader:
    """Reads the data of a gzip member, and checks all that is around it.

    Memory is bounded by two buffers, whatever the stream claims. What has been read is counted and hashed.

    Args:
        stream: The packed bytes, at their beginning; read to their end by `finish`.

    Raises:
        BundleError: From every method, when the stream breaks a rule of its layer.
        UsageError: From every method, when the stream can't be read.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self._inflater = inflater()
        self._error = inflate_error()
        self._ahead: Ahead | None = None
        self._crc = 0
        self._buffer = b""
        self._position = 0
        self._unread = b""
        self.packed_bytes = 0
        """Packed bytes taken from the stream so far."""
        self.unpacked_bytes = 0
        """Bytes that they unpacked to so far, read or not."""
        self._read_header()

    @property
    def sha256(self) -> str:
        """The SHA-256 of the packed bytes, in hexadecimal: of all of them after `finish`."""
        return self._digest.hexdigest()

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes of data; fewer only where it ends."""
        available = len(self._buffer) - self._position
        if size <= available:
            start = self._position
            self._position += size
            return self._buffer[start : self._position]
        pieces = [self._buffer[self._position :]]
        missing = size - available
        while missing and self._fill():
            pieces.append(self._buffer[:missing])
            self._position = len(pieces[-1])
            missing -= self._position
        return b"".join(pieces)

    def finish(self) -> None:
        """Check that the data has been read to its end, its checksum, and that nothing stands behind it."""
        if self._position < len(self._buffer) or self._fill():
            raise BundleError(Rule.TAR_END, "there is data behind the end of the tar.")
        trailer = self._take(self._inflater.unused_data, _TRAILER_BYTES)
        if len(trailer) < _TRAILER_BYTES:
            raise BundleError(Rule.GZIP_DATA, "the file ends before the gzip trailer does: it was cut off.")
        crc, length = struct.unpack("<II", trailer)
        if crc != self._crc:
            raise BundleError(
                Rule.GZIP_CHECKSUM,
                f"the CRC-32 of the data is {self._crc:08x}, not {crc:08x}: it is damaged.",
            )
        if length != self.unpacked_bytes & 0xFFFFFFFF:
            raise BundleError(
                Rule.GZIP_CHECKSUM, f"the data has {self.unpacked_bytes} bytes, not {length}: it is damaged."
            )
        if self._unread or self._pull():
            raise BundleError(Rule.GZIP_END, "bytes stand behind the gzip member.")

    def close(self) -> None:
        """Let go of what works ahead; reading is over."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _read_header(self) -> None:
        header = self._take(b"", _HEADER_BYTES)
        if header[:2] != b"\x1f\x8b":
            raise BundleError(Rule.GZIP_HEADER, "it doesn't begin as a gzip file does.")
        if len(header) < _HEADER_BYTES:
            raise BundleError(Rule.GZIP_HEADER, "the file ends inside its gzip header.")
        _, method, flags, mtime, extra, system = struct.unpack("<HBBIBB", header)
        if method != _METHOD_DEFLATE:
            raise BundleError(Rule.GZIP_HEADER, f"compression method {method} is not deflate.")
        if flags:
            raise BundleError(
                Rule.GZIP_HEADER, f"the header has flags ({flags:#04x}): a name, a comment or an extra field."
            )
        if mtime:
            raise BundleError(Rule.GZIP_HEADER, "the header carries a time.")
        if extra not in _EXTRA_FLAGS or system not in _SYSTEMS:
            raise BundleError(
                Rule.GZIP_HEADER, f"the header's last bytes are {extra} and {system}: no packer writes these."
            )

    def _take(self, begun: bytes, size: int) -> bytes:
        """Return `size` packed bytes, from `begun` and then the stream; keep the rest as unread."""
        while len(begun) < size and (piece := self._pull()):
            begun += piece
        self._unread = begun[size:]
        return begun[:size]

    def _pull(self) -> bytes:
        """Read the next packed bytes from the stream."""
        try:
            piece = self._stream.read(_INPUT_BYTES)
        except OSError as error:
            raise UsageError(f"The bundle can't be read: {error.strerror}.") from error
        self._digest.update(piece)
        self.packed_bytes += len(piece)
        return piece

    def _fill(self) -> bool:
        """Unpack some more into the buffer. False: the data has ended."""
        if self._ahead is None and self.packed_bytes > _AHEAD_FROM_BYTES and not self._inflater.eof:
            # Unpacking goes on while the contents are written.
            self._ahead = Ahead(self._unpack)
        self._buffer, self._position = self._unpack() if self._ahead is None else self._ahead.take(), 0
        if not self._buffer:
            self._ahead = None
        return bool(self._buffer)

    def _unpack(self) -> bytes:
        """Return some more data; nothing where it has ended."""
        data = b""
        while not data:
            if self._inflater.eof:
                return b""
            packed = self._inflater.unconsumed_tail or self._unread or self._pull()
            self._unread = b""
            if not packed:
                raise BundleError(Rule.GZIP_DATA, "the file ends inside its compressed data: it was cut off.")
            try:
                data = self._inflater.decompress(packed, _OUTPUT_BYTES)
            except self._error as error:
                raise BundleError(Rule.GZIP_DATA, f"the compressed data is damaged ({error}).") from error
        self._crc = zlib.crc32(data, self._crc)
        self.unpacked_bytes += len(data)
        if self.unpacked_bytes > MAX_UNPACKED_BYTES:
            raise BundleError(Rule.UNPACKED_SIZE, f"it unpacks to more than {MAX_UNPACKED_BYTES} bytes.")
        if self.unpacked_bytes > max(EXPANSION_GRACE_BYTES, MAX_EXPANSION * self.packed_bytes):
            raise BundleError(
                Rule.EXPANSION_RATIO, f"it unpacks to more than {MAX_EXPANSION} times its packed size."
            )
        return data
