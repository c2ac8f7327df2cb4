"""Which pages of its private mappings a process has written to: the kernel knows (Linux 6.7)."""

from __future__ import annotations

import _thread
import ctypes
import os
from struct import Struct

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

MAX_REGIONS: Final = 8192
"""Regions of written pages that are told of at once."""

# linux/fs.h
_PAGEMAP_SCAN: Final = 0xC0606610
_IS_FILE: Final = 1 << 2
_IS_PRESENT: Final = 1 << 3
_IS_SWAPPED: Final = 1 << 4

_REGION: Final = Struct("=QQQ")  # struct page_region: first byte, first behind it, categories

_ioctl = ctypes.CDLL(None).ioctl
_ioctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)


class _Scan(ctypes.Structure):
    """`struct pm_scan_arg`."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("walk_end", ctypes.c_uint64),
        ("regions", ctypes.c_uint64),
        ("most_regions", ctypes.c_uint64),
        ("most_pages", ctypes.c_uint64),
        ("category_inverted", ctypes.c_uint64),
        ("category_mask", ctypes.c_uint64),
        ("category_any", ctypes.c_uint64),
        ("return_mask", ctypes.c_uint64),
    )


class PageMap:
    """This process's page map."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lock = _thread.allocate_lock()
        self._regions = ctypes.create_string_buffer(MAX_REGIONS * _REGION.size)
        try:
            self._handle = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # There is no /proc, or not for everybody.
            self._handle = -1

    def written(self, start: int, end: int) -> Iterator[tuple[int, int, int]] | None:
        """Return the regions of private mappings, from one address to another, that were ever written to.

        A page that was is the process's own, and no longer the file's: also one that has been written back to
        what the file has. One that was only read is a page of the file.

        Returns:
            Of each region its start, its end, and what kind it is; `None`: the kernel doesn't tell, or there
            are more than `MAX_REGIONS`.
        """
        if self._handle < 0:
            return None
        scan = _Scan(
            size=ctypes.sizeof(_Scan),
            start=start,
            end=end,
            regions=ctypes.addressof(self._regions),
            most_regions=MAX_REGIONS,
            category_inverted=_IS_FILE,
            category_mask=_IS_FILE,
            category_any=_IS_PRESENT | _IS_SWAPPED,
        )
        with self._lock:
            found = _ioctl(self._handle, _PAGEMAP_SCAN, ctypes.byref(scan))
            if found < 0 or scan.walk_end != end:
                return None
            regions = ctypes.string_at(self._regions, found * _REGION.size)
        return _REGION.iter_unpack(regions)


_maps: list[PageMap] = []


def page_map() -> PageMap:
    """Return the page map of this process: a process that is forked has its own."""
    if not _maps or _maps[0].process != os.getpid():
        _maps[:] = [PageMap()]
    return _maps[0]
