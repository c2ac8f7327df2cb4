"""How much memory an instance has: Wasmtime's C interface doesn't say, but the kernel does.

A memory is a part of the address space that stands alone between guard pages, and it begins with pages that
are mapped from the compiled guest. Its accessible length is its size, and that never shrinks.
"""

from __future__ import annotations

import _thread

from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

_MAPS: Final = "/proc/self/maps"
_COMPILED: Final = ".cwasm"


class Region(Record):
    """Accessible pages: the addresses of the first byte and of the one behind the last."""

    start: int
    end: int


class LinearMemories:
    """The memories of the instances of this process.

    Attributes:
        lock: Held while a memory is made and added, or unmapped and forgotten, so that what is new is told
            right.
    """

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self._known: set[int] = set()

    def add(self) -> int | None:
        """Return the address of the memory that wasn't there before, if it can be told."""
        new = [region.start for region in regions() if region.start not in self._known]
        if len(new) != 1:
            return None
        self._known.add(new[0])
        return new[0]

    def size(self, start: int | None) -> int:
        """Return the size in bytes of a memory that is still there; 0 if it is unknown."""
        return next((region.end - region.start for region in regions() if region.start == start), 0)

    def forget(self, start: int | None) -> None:
        """Let go of a memory, when it is unmapped and `lock` still held: its address can come back."""
        if start is not None:
            self._known.discard(start)


def regions(maps: str = _MAPS) -> list[Region]:
    """Return all memories. Format: proc_pid_maps(5)."""
    with open(maps, "rb") as stream:
        lines = stream.read().decode("utf-8", "surrogateescape").splitlines()
    found: list[Region] = []
    start = end = 0
    marked = False
    for line in lines:
        addresses, _, rest = line.partition(" ")
        low, _, high = addresses.partition("-")
        if rest.startswith("rw-p") and end == int(low, 16):
            end = int(high, 16)
        else:
            if marked:
                found.append(Region(start, end))
            marked = False
            if not rest.startswith("rw-p"):
                start = end = 0
                continue
            start, end = int(low, 16), int(high, 16)
        marked = marked or _COMPILED in rest
    if marked:
        found.append(Region(start, end))
    return found
