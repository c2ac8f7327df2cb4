"""Cuts a tar stream off behind its last member.

Podman unpacks an upload in a process of its own, which ends at the archive's end mark. What follows the
mark (tar pads to whole records) then meets a closed pipe, and one upload in six failed for it with
"passing bulk input to subprocess: broken pipe" (seen with 4.3.1). Without the mark the process reads on to
the stream's end, as readers of tar do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..runtime.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BLOCK: Final = 512
_WITHOUT_CONTENT: Final = frozenset(b"123456")
"""Types of links, devices, folders and FIFOs: whatever their size field says, no content follows (pax(1))."""

_LARGEST_PAX: Final = 1 << 20
_PAX_SIZE: Final = re.compile(rb"(?:^|\n)\d+ size=(\d+)\n")


def without_end_mark(tar: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a tar stream up to its end mark.

    Raises:
        UsageError: It is no tar, or ends in the middle of a member.
    """
    source = _Source(tar)
    size: int | None = None
    while header := source.take(_BLOCK):
        if not any(header):
            source.drain()
            return
        kind = header[156]
        own = 0 if kind in _WITHOUT_CONTENT else _number(header[124:136])
        length = own if size is None or kind in b"xgLK" else size
        padded = -(-length // _BLOCK) * _BLOCK
        yield header
        if kind in b"xgLK":
            if padded > _LARGEST_PAX:
                raise UsageError("The archive has an extended header that is too long.")
            content = source.take(padded)
            yield content
            if kind == ord("x") and (found := _PAX_SIZE.search(content[:length])):
                size = int(found[1])
        else:
            yield from source.pass_on(padded)
            size = None


class _Source:
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = b""
        self._at = 0

    def pass_on(self, count: int) -> Iterator[bytes]:
        """Yield exactly `count` bytes in pieces as they come."""
        while count:
            if not self._more():
                raise UsageError("The archive ends in the middle of a member.")
            piece = self._held[self._at : self._at + count]
            self._at += len(piece)
            count -= len(piece)
            yield piece

    def take(self, count: int) -> bytes:
        """Return exactly `count` bytes, or none at the stream's end."""
        return b"".join(self.pass_on(count)) if self._more() else b""

    def _more(self) -> bool:
        while self._at == len(self._held):
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._held, self._at = chunk, 0
        return True

    def drain(self) -> None:
        """Read what is left, so that whoever makes the stream comes to its end."""
        for _ in self._chunks:
            pass


def _number(field: bytes) -> int:
    """Read a header's number: octal digits, or base 256 where the first bit is set (a GNU extension)."""
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    digits = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]*", digits):
        raise UsageError("The archive is no tar.")
    return int(digits or b"0", 8)
