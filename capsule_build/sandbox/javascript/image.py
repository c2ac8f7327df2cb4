"""The memory of a guest, carried from one instance to the next.

All that JavaScript's guest knows lies in its linear memory: the globals of its code have the same values
whenever no call is under way, and its tables never change. So an instance that is given the memory of another
one goes on as that one would. What the guest holds of the host (descriptors, timers) it lets go of before.

All instances begin with the same memory, so only what differs from that is kept.
"""

from __future__ import annotations

import ctypes
import mmap

from ..pagemap import page_map
from ..records import Record
from ..wasmtime_abi import WasmError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Final

MAX_IMAGE_BYTES: Final = 256 << 20
"""Of memory that a run leaves otherwise than a new guest has it."""

_PAGE: Final = 64 << 10
"""Of WebAssembly: a memory grows by that."""

_UNIT: Final = 16 << 10
"""What is compared, and kept or not."""

_NOTHING: Final = bytes(_UNIT)
_MAX_TRIES: Final = 64

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes, _memcmp.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int

_fresh: list[bytes] = []


class Image(Record):
    """What a memory holds.

    Attributes:
        size: Of the memory, in bytes.
        spans: Where it differs from a new guest's: offsets, and how many bytes.
        content: What it has there, one behind the other.
    """

    size: int
    spans: list[tuple[int, int]]
    content: ctypes.Array[ctypes.c_char]


class MemoryCarrier:
    """Fills the memory of one instance, and keeps what it leaves.

    Args:
        image: What it shall begin with; `None`: as a new guest does.
        keep: Whether what it leaves is wanted.
    """

    def __init__(self, image: Image | None, *, keep: bool) -> None:
        self._image = image
        self._keep = keep
        self._left: Image | None = None

    def take(self) -> Image | None:
        """Return what it left, if that isn't more than `MAX_IMAGE_BYTES`, and let go of all memory."""
        left = self._left
        # An instance is part of a cycle of references, and so outlives its run.
        self._image = self._left = None
        return left

    def begin(self, address: int, size: Callable[[], int], call: Callable[[bytes], bytes]) -> None:
        """Fill the memory of a new instance.

        Args:
            address: Of its first byte.
            size: Tells how many bytes it has.
            call: Calls the guest, whose memory may grow by that.

        Raises:
            WasmError: The memory can't be made as large as it was.
        """
        self._left = None
        if self._keep and not _fresh:
            # Of any other instance it will be the same.
            _fresh.append(ctypes.string_at(address, size()))
        if self._image is None:
            return
        if size() != len(_fresh[0]):
            raise WasmError("the guest doesn't begin with the memory that it had before")
        if size() < self._image.size:
            _grow(self._image.size, size, call)
            ctypes.memmove(address, _fresh[0], len(_fresh[0]))
            ctypes.memset(address + len(_fresh[0]), 0, size() - len(_fresh[0]))
        source = ctypes.addressof(self._image.content)
        for offset, length in self._image.spans:
            ctypes.memmove(address + offset, source, length)
            source += length

    def end(self, address: int, size: int) -> None:
        """Keep what a call has left."""
        if not self._keep:
            return
        spans = _differing(address, size)
        total = sum(length for _, length in spans)
        if total > MAX_IMAGE_BYTES:
            return
        # Of its own, so that the system has it back with the image: one follows upon another.
        content = (ctypes.c_char * total).from_buffer(mmap.mmap(-1, max(1, total)))
        target = ctypes.addressof(content)
        for offset, length in spans:
            ctypes.memmove(target, address + offset, length)
            target += length
        self._left = Image(size, spans, content)


def _differing(address: int, size: int) -> list[tuple[int, int]]:
    fresh = _fresh[0]
    base = ctypes.cast(ctypes.c_char_p(fresh), ctypes.c_void_p).value or 0
    spans: list[tuple[int, int]] = []
    for offset in _written(address, size):
        before: int | bytes = base + offset if offset < len(fresh) else _NOTHING
        if _memcmp(address + offset, before, _UNIT):
            if spans and sum(spans[-1]) == offset:
                spans[-1] = spans[-1][0], spans[-1][1] + _UNIT
            else:
                spans.append((offset, _UNIT))
    return spans


def _written(address: int, size: int) -> Iterable[int]:
    """Return where the units are that may differ, in their order: what wasn't written to is as it was."""
    regions = page_map().written(address, address + size)
    if regions is None:
        return range(0, size, _UNIT)
    found: dict[int, None] = {}
    for start, stop, _ in regions:
        first = (start - address) // _UNIT * _UNIT
        found.update(dict.fromkeys(range(first, stop - address, _UNIT)))
    return found


def _grow(wanted: int, size: Callable[[], int], call: Callable[[bytes], bytes]) -> None:
    # Only the guest can make its memory larger: by allocating. Half a page at a time makes no more than a
    # page of it, so this comes near from below.
    for _ in range(_MAX_TRIES):
        pages = (wanted - size()) // _PAGE
        if pages <= 0:
            break
        call(b'{"op": "grow", "blocks": %d}' % max(1, 2 * pages - 2))
    if size() != wanted:
        raise WasmError(f"the memory of a run can't be made as large as the last one's: {wanted} bytes")
