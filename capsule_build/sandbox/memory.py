"""The linear memories that instances have: made by the host, and used again.

A memory begins as the guest's image (`linking.separating`), mapped from its file: each page that is written
to becomes this process's own. When the instance is gone, these pages are written back to what they were, and
the memory waits for the next instance, which finds them there: to take and fill a page for each that is
written to was two fifths of a short task. What is written back is what the kernel says was written to; where
it doesn't say (Linux before 6.7), or where that is much, the memory is unmapped and the next one is new.

Interface: `wasmtime_config_host_memory_creator_set` in `wasmtime/config.h`.
"""

from __future__ import annotations

import _thread
import ctypes
import os

from . import wasmtime_abi as abi
from .pagemap import page_map
from .wasmtime_abi import WasmError, lib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Final

MAX_KEPT_BYTES: Final = 32 << 20
"""Of memory that instances have written to, and that one of them leaves to the next."""

_SMALL_BYTES: Final = 4 << 20
_MAX_USES: Final = 16
"""Of a memory of which more than that was written to: a large task would slow down small ones behind it."""

MAX_IDLE: Final = 2
"""Memories of one size that wait for instances."""

# sys/mman.h
_NONE, _READ, _READ_WRITE = 0, 1, 3
_PRIVATE, _FIXED, _ANONYMOUS, _NORESERVE = 0x02, 0x10, 0x20, 0x4000
_FAILED: Final = ctypes.c_size_t(-1).value

# Short ones keep the interpreter's lock: to let go of it and get it back takes longer.
_libc = ctypes.PyDLL(None, use_errno=True)
_mmap, _mprotect, _munmap = _libc.mmap, _libc.mprotect, _libc.munmap
_mmap.restype = ctypes.c_size_t
_mmap.argtypes = (*(ctypes.c_size_t,) * 2, *(ctypes.c_int,) * 3, ctypes.c_long)
_mprotect.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
_munmap.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
_copy = ctypes.memmove


class Image:
    """What memories begin with.

    Args:
        handle: A descriptor of the file that holds it.
        length: Its bytes: whole pages.

    Attributes:
        address: Where this process has it, to read.
    """

    def __init__(self, handle: int, length: int) -> None:
        self.length = length
        self._handle = handle
        self._file = _file_of(handle)
        self.address = _mapped(0, length, _READ, _PRIVATE, handle) if length else 0

    def put(self, address: int) -> None:
        """Have reserved room begin with it.

        Raises:
            WasmError: The system has no room for that.
        """
        if _file_of(self._handle) == self._file:
            _mapped(address, self.length, _READ_WRITE, _PRIVATE | _FIXED, self._handle)
            return
        # A program that becomes a daemon closes all descriptors: this one may be that of any file by now.
        _protect(address, self.length, _READ_WRITE)
        _copy(address, self.address, self.length)


class Memory:
    """A linear memory: accessible pages, and pages behind them that it can grow by, or that only guard it.

    Args:
        minimum: Bytes that are accessible from the beginning on.
        reserved: Bytes that it can grow to where it is.
        guard: Bytes behind those, that are never accessible.
        image: What it begins with; `None`: zeros.

    Attributes:
        address: Of its first byte.
        size: Bytes that are accessible.

    Raises:
        WasmError: The system has no room for it.
    """

    def __init__(self, minimum: int, reserved: int, guard: int, image: Image | None) -> None:
        self.minimum = minimum
        self.reserved = reserved
        self.size = 0
        self._uses = 0
        self._image = image
        self._whole = reserved + guard
        self.address = _mapped(0, self._whole, _NONE, _PRIVATE | _ANONYMOUS | _NORESERVE, -1)
        try:
            if image is not None and image.length:
                image.put(self.address)
                self.size = image.length
            self.grow(minimum)
        except BaseException:
            self.unmap()
            raise

    def grow(self, size: int) -> None:
        """Make it so many bytes large.

        Raises:
            WasmError: The system has no room for that.
        """
        if size > self.reserved:
            raise WasmError(f"A memory of {self.reserved} bytes can't grow to {size}.")
        _protect(self.address + self.size, size - self.size, _READ_WRITE)
        self.size = size

    def renew(self) -> bool:
        """Make it as new. `False`: it can't be told how, or that isn't worth it, and it is to be unmapped."""
        written = page_map().written(self.address, self.address + self.size)
        if written is None:
            return False
        length = 0 if self._image is None else self._image.length
        behind = self.address + length
        distance = 0 if self._image is None else self._image.address - self.address
        kept = 0
        # Some two hundred after a short task: this is much of what the host does for one.
        for start, stop, _ in written:
            kept += stop - start
            if kept > MAX_KEPT_BYTES:
                return False
            if stop <= behind:
                _copy(start, start + distance, stop - start)
                continue
            if start < behind:
                _copy(start, start + distance, behind - start)
            zeros = max(start, behind)
            ctypes.memset(zeros, 0, stop - zeros)
        self._uses += 1
        if kept > _SMALL_BYTES and self._uses >= _MAX_USES:
            return False
        if self.size > self.minimum:
            _protect(self.address + self.minimum, self.size - self.minimum, _NONE)
            self.size = self.minimum
        return True

    def unmap(self) -> None:
        """Give it back to the system."""
        _munmap(self.address, self._whole)


class Memories:
    """The memories of the instances of one engine.

    Args:
        minimum: Bytes that the guest's own memory begins with; others are those of a component's adapters.

    Attributes:
        image: What the guest's own memory begins with. To be set before an instance is made.
    """

    def __init__(self, minimum: int) -> None:
        self.image: Image | None = None
        self._minimum = minimum
        self._used: dict[int, Memory] = {}
        self._idle: dict[int, list[Memory]] = {}
        self._of_threads: dict[int, Memory] = {}
        # Wasmtime calls these for as long as the engine is there: as long as the process.
        self._get = abi.MEMORY_GET_CALLBACK(self._tell)
        self._grow = abi.MEMORY_GROW_CALLBACK(self._grown)
        self._finalizer = abi.FINALIZER(self._let_go)
        self._creator = abi.MemoryCreator(0, abi.NEW_MEMORY_CALLBACK(self._new), abi.NO_FINALIZER)

    def serve(self, config: int) -> None:
        """Have an engine that is configured so take its memories from here."""
        lib.wasmtime_config_host_memory_creator_set(config, ctypes.byref(self._creator))

    def taken(self) -> Memory | None:
        """Return the guest's own memory that this thread was given last, once."""
        return self._of_threads.pop(_thread.get_ident(), None)

    def _new(
        self,
        _environment: int | None,
        _type: int | None,
        minimum: int,
        _maximum: int,
        reserved: int,
        guard: int,
        result: Any,
    ) -> int:
        try:
            memory = self._waiting(minimum) or self._made(minimum, reserved, guard)
        except Exception as error:
            return abi.new_error(str(error))
        self._used[memory.address] = memory
        if minimum == self._minimum:
            self._of_threads[_thread.get_ident()] = memory
        given = result[0]
        given.environment, given.get, given.grow = memory.address, self._get, self._grow
        given.finalizer = self._finalizer
        return 0

    def _waiting(self, minimum: int) -> Memory | None:
        try:
            # One step of the interpreter: two threads never get the same.
            return self._idle[minimum].pop()
        except LookupError:
            return None

    def _made(self, minimum: int, reserved: int, guard: int) -> Memory:
        image = self.image if minimum == self._minimum else None
        if image is not None and image.length > minimum:
            raise WasmError(f"The guest's data needs {image.length} bytes of memory, and it has {minimum}.")
        return Memory(minimum, reserved, guard, image)

    def _tell(self, address: int, size: Any, capacity: Any) -> int:
        memory = self._used[address]
        size[0], capacity[0] = memory.size, memory.reserved
        return address

    def _grown(self, address: int, size: int) -> int:
        try:
            self._used[address].grow(size)
        except Exception as error:
            return abi.new_error(str(error))
        return 0

    def _let_go(self, address: int) -> None:
        memory = self._used.pop(address)
        idle = self._idle.setdefault(memory.minimum, [])
        try:
            stays = len(idle) < MAX_IDLE and memory.renew()
        except WasmError:
            # Nobody could hear of it here, and nothing depends on it.
            stays = False
        if stays:
            idle.append(memory)
        else:
            memory.unmap()


def _mapped(address: int, length: int, protection: int, flags: int, handle: int) -> int:
    found: int = _mmap(address, length, protection, flags, handle, 0)
    if found == _FAILED:
        raise _failed(length)
    return found


def _file_of(handle: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(handle)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _protect(address: int, length: int, protection: int) -> None:
    if length and _mprotect(address, length, protection):
        raise _failed(length)


def _failed(length: int) -> WasmError:
    return WasmError(f"The system gives no memory of {length} bytes: {os.strerror(ctypes.get_errno())}.")
