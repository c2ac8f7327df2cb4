"""The memory of a guest, carried from one instance to the next.

All that JavaScript's guest knows lies in its linear memory: the globals of its code have the same values
whenever no call is under way, and its tables never change. So an instance that is given the memory of another
one goes on as that one would. What the guest holds of the host (descriptors, timers) it lets go of before.

All instances begin with the same memory, so only what differs from that is kept.
"""

from __future__ import annotations

import ctypes

from ..records import Record
from ..wasmtime_abi import WasmError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
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
        units: What differs from a new guest's, by where it begins.
    """

    size: int
    units: dict[int, bytes]


class MemoryCarrier:
    """Fills the memory of one instance, and keeps what it leaves.

    Args:
        image: What it shall begin with; `None`: as a new guest does.

    Attributes:
        left: What it left, if that isn't more than `MAX_IMAGE_BYTES`.
    """

    def __init__(self, image: Image | None) -> None:
        self.left: Image | None = None
        self._image = image

    def begin(self, address: int, size: Callable[[], int], call: Callable[[bytes], bytes]) -> None:
        """Fill the memory of a new instance.

        Args:
            address: Of its first byte.
            size: Tells how many bytes it has.
            call: Calls the guest, whose memory may grow by that.

        Raises:
            WasmError: The memory can't be made as large as it was.
        """
        self.left = None
        if not _fresh:
            # Of any other instance it will be the same.
            _fresh.append(ctypes.string_at(address, size()))
        if self._image is None:
            return
        if size() < self._image.size:
            _grow(self._image.size, size, call)
            ctypes.memmove(address, _fresh[0], len(_fresh[0]))
            ctypes.memset(address + len(_fresh[0]), 0, size() - len(_fresh[0]))
        for offset, unit in self._image.units.items():
            ctypes.memmove(address + offset, unit, len(unit))

    def end(self, address: int, size: int) -> None:
        """Keep what a call has left."""
        fresh = _fresh[0]
        base = ctypes.cast(ctypes.c_char_p(fresh), ctypes.c_void_p).value or 0
        units = {}
        left = MAX_IMAGE_BYTES
        for offset in range(0, size, _UNIT):
            before: int | bytes = base + offset if offset < len(fresh) else _NOTHING
            if _memcmp(address + offset, before, _UNIT):
                left -= _UNIT
                if left < 0:
                    return
                units[offset] = ctypes.string_at(address + offset, _UNIT)
        self.left = Image(size, units)


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
