"""One WebAssembly instance, from its making to its end: the limits are enforced here.

| limit | by |
|---|---|
| compute | Wasmtime's fuel |
| memory | the store's limiter: growth beyond it fails, as on a machine that has no more |
| time | the engine's epoch, which the waiting thread advances; what doesn't come back to WebAssembly is
abandoned |
| stack | Wasmtime's own limit, on a thread of the instance's own |
"""

from __future__ import annotations

import _thread
import ctypes
import itertools
import os
import time

from . import wasmtime_abi as abi
from .machine import THREAD_STACK_BYTES
from .records import Record
from .wasmtime_abi import WasmError, check, lib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from .grants import OpenFolder
    from .javascript.image import MemoryCarrier
    from .machine import Machine
    from .memory import Memory

GRACE_SECONDS: Final = 0.06
"""How long after its time an instance may take to notice. Then it is abandoned."""

_POLL_SECONDS: Final = 0.005
_SLICE_SECONDS: Final = 0.2
MAX_ANSWER_BYTES: Final = 128 << 20
"""Of a result, as JSON, which the host has several times while it reads it."""

MAX_ABANDONED: Final = 16
"""Instances that may wait in a call of the system, abandoned, before this process starts no more."""

_UNLIMITED: Final = -1
_TABLE_ELEMENTS: Final = 1_000_000


class Setup(Record):
    """What an instance is given.

    Attributes:
        fuel: Units.
        memory: Bytes, or `None`.
        deadline: On `time.monotonic`'s clock, in seconds; or `None`.
        folders: Open folders.
        environment: Variables.
        output: Hears what is printed: 1 or 2, and bytes.
        answer: Answers the guest's requests to the host.
        carrier: Gives it the memory that another one has left, and keeps what it leaves; `None`: nobody does.
        preparation: The guest's first request, of two; `None`: it has one.
    """

    fuel: int
    memory: int | None
    deadline: float | None
    folders: Sequence[OpenFolder]
    environment: Mapping[str, str]
    output: Callable[[int, bytes], None]
    answer: Callable[[bytes, Instance], bytes]
    carrier: MemoryCarrier | None = None
    preparation: bytes | None = None


class Outcome(Record):
    """How an instance ended.

    Attributes:
        kind: `answer`, `fuel`, `timeout`, `cancelled`, `exit` or `trap`.
        answer: What the guest returned; a trap's reason.
        fuel: Units that were used.
        memory: Bytes of linear memory that it had at its end, which is its most: it never shrinks.
        abandoned: Whether it still waits somewhere.
    """

    kind: str
    answer: bytes
    fuel: int
    memory: int
    abandoned: bool = False


_running: dict[int, Instance] = {}
# One step of the interpreter: two threads never get the same, and so never each other's grants.
_identities = itertools.count(1)
_starting = _thread.allocate_lock()
_abandoned: set[int] = set()
# One that is made while another is taken apart can't have its memory, which the processor has at hand.
_changing = _thread.allocate_lock()
# A process that is forked has but the one thread that forks: what others hold would never be let go of, and
# when a task has ended, its instance is still taken apart.
for _lock in (_starting, _changing):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def answer(context: int, request: bytes) -> bytes:
    """Answer a guest's request by what its own instance was given: which one asks is Wasmtime's word."""
    instance = _running[lib.wasmtime_context_get_data(context)]
    return instance.setup.answer(request, instance)


def abandoned() -> int:
    """Return how many instances of this process still wait in calls of the system, past their time."""
    return len(_abandoned)


class Instance:
    """An instance that runs once.

    Args:
        machine: The engine and the guest.
        setup: What it is given.
    """

    def __init__(self, machine: Machine, setup: Setup) -> None:
        self.setup = setup
        self.identity = next(_identities)
        self.stop: str | None = None
        self.child: Instance | None = None
        self._machine = machine
        self._context = 0
        self._begun = False
        self._request: bytes | None = None
        self._outcome: Outcome | None = None
        self._asked = _thread.allocate_lock()
        self._done = _thread.allocate_lock()

    def begin(self) -> None:
        """Make and prepare it, on its own thread, where it waits for its request."""
        self._begun = True
        self._asked.acquire()
        self._done.acquire()
        with _starting:
            before = _thread.stack_size(THREAD_STACK_BYTES)
            try:
                _thread.start_new_thread(self._thread, ())
            finally:
                _thread.stack_size(before)

    def dismiss(self) -> None:
        """End it, which has begun and won't get a request."""
        self.cancel("cancelled")
        self._asked.release()

    def run(self, request: bytes) -> Outcome:
        """Run the guest's one function to its end, and wait for that no longer than its time.

        Raises:
            WasmError: Too many instances of this process were abandoned.
        """
        if len(_abandoned) >= MAX_ABANDONED:
            raise WasmError(
                f"{MAX_ABANDONED} tasks of this process still wait in calls of the system, past their time."
            )
        self._request = request
        if not self._begun:
            self.begin()
        self._asked.release()
        try:
            finished = self._wait()
        except BaseException:
            # A Ctrl-C: the instance must not go on without anybody who waits for it.
            self.cancel("cancelled")
            if not self._done.acquire(timeout=GRACE_SECONDS):
                self._abandon()
            raise
        if not finished or self._outcome is None:
            self._abandon()
            return Outcome(self.stop or "timeout", b"", 0, 0, abandoned=True)
        outcome, self._outcome = self._outcome, None
        return outcome

    def cancel(self, reason: str) -> None:
        """End it, and what it waits for, as soon as it comes back to WebAssembly."""
        self.stop = self.stop or reason
        if self.child is not None:
            self.child.cancel(reason)
        self._machine.interrupt()

    def fuel_left(self) -> int:
        """Return how many units are left. Only from within a request of this instance."""
        left = ctypes.c_uint64()
        check(lib.wasmtime_context_get_fuel(self._context, ctypes.byref(left)))
        return left.value

    def set_fuel(self, fuel: int) -> None:
        """Set how many units are left. Only from within a request of this instance."""
        check(lib.wasmtime_context_set_fuel(self._context, fuel))

    def _wait(self) -> bool:
        deadline = self.setup.deadline
        # In slices: a signal that comes just before a wait begins doesn't end it.
        while (left := _SLICE_SECONDS if deadline is None else deadline - time.monotonic()) > 0:
            if self._done.acquire(timeout=min(left, _SLICE_SECONDS)):
                return True
        give_up = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < give_up:
            self.cancel("timeout")
            if self._done.acquire(timeout=_POLL_SECONDS):
                return True
        return False

    def _abandon(self) -> None:
        _abandoned.add(self.identity)
        if self._outcome is not None:
            # It has just ended by itself.
            _abandoned.discard(self.identity)

    def _thread(self) -> None:
        store = lib.wasmtime_store_new(self._machine.engine, self.identity, abi.NO_FINALIZER)
        self._context = lib.wasmtime_store_context(store)
        _running[self.identity] = self
        memory: Memory | None = None
        try:
            self._configure(store)
            handle = abi.InstanceHandle()
            with _changing:
                error = lib.wasmtime_component_linker_instantiate(
                    self._machine.linker, self._context, self._machine.component, ctypes.byref(handle)
                )
            memory = self._machine.memories.taken()
            check(error)
            kind, text = "answer", self._answered(handle, memory)
        except WasmError as error:
            kind, text = self._why(error)
        except Exception as error:
            kind, text = "trap", f"{type(error).__name__}: {error}".encode()
        try:
            fuel = self.setup.fuel - self.fuel_left()
            self._outcome = Outcome(kind, text, fuel, 0 if memory is None else memory.size)
        finally:
            _abandoned.discard(self.identity)
            with _changing:
                # Who waits goes on before it is taken apart; but the next one is made after that.
                self._done.release()
                lib.wasmtime_store_delete(store)
            del _running[self.identity]

    def _answered(self, handle: abi.InstanceHandle, memory: Memory | None) -> bytes:
        if self.setup.preparation is not None:
            self._call(handle, self.setup.preparation)
        self._asked.acquire()
        # It outlives its run, as part of a cycle of references, and what it was told may be large.
        request, self._request = self._request, None
        return b"" if request is None else self._carried(handle, request, memory)

    def _configure(self, store: int) -> None:
        setup = self.setup
        # First: what fails from here on has used none of it.
        self.set_fuel(setup.fuel)
        memory = _UNLIMITED if setup.memory is None else setup.memory
        lib.wasmtime_store_limiter(store, memory, _TABLE_ELEMENTS, _UNLIMITED, _UNLIMITED, _UNLIMITED)
        wasi = lib.wasi_config_new()
        lib.wasi_config_set_stdout_custom(wasi, _STDOUT, self.identity, abi.NO_FINALIZER)
        lib.wasi_config_set_stderr_custom(wasi, _STDERR, self.identity, abi.NO_FINALIZER)
        names = abi.strings([name.encode() for name in setup.environment])
        values = abi.strings(
            [value.encode("utf-8", "surrogateescape") for value in setup.environment.values()]
        )
        if not lib.wasi_config_set_env(wasi, len(setup.environment), names, values):
            lib.wasi_config_delete(wasi)
            raise WasmError("The environment variables of the task aren't UTF-8.")
        for folder in setup.folders:
            path = f"/proc/self/fd/{folder.handle}".encode()
            if not lib.wasi_config_preopen_dir(wasi, path, folder.guest.encode(), folder.writable):
                lib.wasi_config_delete(wasi)
                raise WasmError(f"The folder {folder.guest} can't be given to the task.")
        check(lib.wasmtime_context_set_wasi(self._context, wasi))
        lib.wasmtime_store_epoch_deadline_callback(store, _GOES_ON, self.identity, abi.NO_FINALIZER)
        lib.wasmtime_context_set_epoch_deadline(self._context, 1)
        if self.stop is not None:
            # It was cancelled before: the epoch that would have told it is past.
            lib.wasmtime_context_set_epoch_deadline(self._context, 0)

    def _carried(self, handle: abi.InstanceHandle, request: bytes, memory: Memory | None) -> bytes:
        carrier = self.setup.carrier
        if carrier is None:
            return self._call(handle, request)
        if memory is None:
            raise WasmError("the guest has no memory of its own")
        carrier.begin(memory.address, lambda: memory.size, lambda asked: self._call(handle, asked))
        self.set_fuel(self.setup.fuel)
        text = self._call(handle, request)
        carrier.end(memory.address, memory.size)
        return text

    def _call(self, handle: abi.InstanceHandle, request: bytes) -> bytes:
        function = abi.FuncHandle()
        if not lib.wasmtime_component_instance_get_func(
            ctypes.byref(handle), self._context, self._machine.export, ctypes.byref(function)
        ):
            raise WasmError("The guest has no function 'call'.")
        argument, result = abi.borrowed_string(request), abi.Val()
        self._machine.call(function, self._context, argument, result, lambda: self.stop is not None)
        try:
            if result.of.string.size > MAX_ANSWER_BYTES:
                raise WasmError(f"The task's result has more than {MAX_ANSWER_BYTES} bytes.")
            return abi.read_string(result)
        finally:
            lib.wasmtime_component_val_delete(ctypes.byref(result))

    def _why(self, error: WasmError) -> tuple[str, bytes]:
        if self.stop is not None:
            return self.stop, b""
        if error.exit_status is not None:
            return "exit", str(error.exit_status).encode()
        reason = error.message.rpartition("Caused by:")[2].strip() or error.message
        if "all fuel consumed" in error.message:
            return "fuel", b""
        return "trap", reason.encode("utf-8", "replace")[-2000:]


def _shall_go_on(_context: int, identity: int, delta: Any, kind: Any) -> int:
    stop = _running[identity].stop
    if stop is not None:
        return abi.new_error(stop)
    delta[0], kind[0] = 1, 0
    return 0


def _writer(number: int) -> Any:
    def write(identity: int, pointer: int, size: int) -> int:
        try:
            _running[identity].setup.output(number, ctypes.string_at(pointer, size))
        except Exception:
            return size
        return size

    return abi.OUTPUT_CALLBACK(write)


_GOES_ON: Final = abi.EPOCH_CALLBACK(_shall_go_on)
_STDOUT: Final = _writer(1)
_STDERR: Final = _writer(2)
