"""How much memory an instance has: Wasmtime's C interface doesn't say, but the kernel does.

A memory is a part of the address space that stands alone between guard pages, and it begins with pages that
are mapped from the compiled guest. Its accessible length is its size, and that never shrinks.

The kernel is asked for single parts, where it can be (Linux 6.11): a list of all takes a tenth of a task.
"""

from __future__ import annotations

import _thread
import ctypes
import os

from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

_MAPS: Final = "/proc/self/maps"
_COMPILED: Final = b".cwasm"

# linux/fs.h
_PROCMAP_QUERY: Final = 0xC0686611
_READABLE: Final = 0x01
_WRITABLE: Final = 0x02
_OR_NEXT: Final = 0x10
_OF_FILE: Final = 0x20
_NAME_BYTES: Final = 4096

_ioctl = ctypes.CDLL(None).ioctl
_ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)


class _Query(ctypes.Structure):
    """`struct procmap_query`."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("is", ctypes.c_uint64),
        ("page_size", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("device", ctypes.c_uint32 * 2),
        ("name_size", ctypes.c_uint32),
        ("build_id_size", ctypes.c_uint32),
        ("name", ctypes.c_uint64),
        ("build_id", ctypes.c_uint64),
    )


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
        self._maps: _Maps | None = None

    def add(self) -> int | None:
        """Return the address of the memory that wasn't there before, if it can be told."""
        maps = self._asked()
        found = maps.memories() if maps.can_be_asked else [region.start for region in regions()]
        new = [start for start in found if start not in self._known]
        if len(new) != 1:
            return None
        self._known.add(new[0])
        return new[0]

    def size(self, start: int | None) -> int:
        """Return the size in bytes of a memory that is still there; 0 if it is unknown."""
        if start is None:
            return 0
        maps = self._asked()
        if maps.can_be_asked:
            return maps.end(start) - start
        return next((region.end - region.start for region in regions() if region.start == start), 0)

    def forget(self, start: int | None) -> None:
        """Let go of a memory, when it is unmapped and `lock` still held: its address can come back."""
        if start is not None:
            self._known.discard(start)

    def _asked(self) -> _Maps:
        if self._maps is None or self._maps.process != os.getpid():
            self._maps = _Maps()
        return self._maps


class _Maps:
    """The kernel's list of this process's parts of the address space, asked for single ones.

    Attributes:
        process: The process that it is of: one that is forked has its own.
        can_be_asked: Whether this kernel can be.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._handle = os.open(_MAPS, os.O_RDONLY | os.O_CLOEXEC)
        self._compiled: dict[tuple[int, int, int], bool] = {}
        self.can_be_asked = self._find(0, _READABLE | _OR_NEXT) is not None

    def memories(self) -> list[int]:
        """Return where memories begin."""
        starts = []
        address = 0
        while found := self._find(address, _READABLE | _WRITABLE | _OF_FILE | _OR_NEXT):
            address = found.end
            if self._is_compiled(found):
                start = found.start
                # What is mapped from the file needn't be the first of it.
                while before := self._find(start - 1, _READABLE | _WRITABLE):
                    start = before.start
                starts.append(start)
        return starts

    def end(self, start: int) -> int:
        """Return where the accessible pages end that begin at an address."""
        end: int = start
        while found := self._find(end, _READABLE | _WRITABLE):
            end = found.end
        return end

    def _is_compiled(self, found: _Query) -> bool:
        file = (found.inode, *found.device)
        if file not in self._compiled:
            name = ctypes.create_string_buffer(_NAME_BYTES)
            self._find(found.start, 0, name)
            self._compiled[file] = _COMPILED in name.value
        return self._compiled[file]

    def _find(
        self, address: int, flags: int, name: ctypes.Array[ctypes.c_char] | None = None
    ) -> _Query | None:
        query = _Query(ctypes.sizeof(_Query), flags, address)
        if name is not None:
            query.name_size, query.name = len(name), ctypes.addressof(name)
        return None if _ioctl(self._handle, _PROCMAP_QUERY, ctypes.byref(query)) else query


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
        marked = marked or _COMPILED.decode() in rest
    if marked:
        found.append(Region(start, end))
    return found
