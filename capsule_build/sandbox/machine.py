"""Wasmtime, configured, with the compiled guest in it: one for each process."""

from __future__ import annotations

import ctypes
import os

from . import guest
from . import wasmtime_abi as abi
from .memory import Image, Memories
from .records import Record
from .store import FORMAT, Guest, Store, prepare
from .wasmtime_abi import HOST_CALLBACK, NO_FINALIZER, WasmError, check, lib

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

STACK_BYTES: Final = 1 << 20
"""Of native stack for WebAssembly. CPython's own limit of recursion comes first."""

START_BYTES: Final = 454 << 16
"""Of memory, that the guest begins with: a task can't have less."""

MAX_REQUEST_BYTES: Final = 64 << 20
"""Of one request of a guest to the host, which keeps it several times in memory while it reads it."""

_CALLBACK_STACK_BYTES: Final = 5 << 20
"""Of the stack of a function that waits, which is one of its own, for what is called from within it."""

THREAD_STACK_BYTES: Final = 8 << 20
"""Of a thread that an instance runs in: its own, Wasmtime's and that of the callbacks."""


class Kind(Record):
    """Which guest a machine has.

    Attributes:
        key: Returns the name that the compiled guest has in the store: it tells all that the code depends on.
        make: Returns the guest's WebAssembly; it is given what hears of what takes its time.
        language: Its language's name.
        smallest: Bytes of memory that the guest begins with.
        stack: Bytes of native stack for WebAssembly.
        waits: Whether its function is one that waits (`async` in WIT), as that of an engine with promises is.
        prepares: Whether it takes a file first, and then a request to run a task of it.
    """

    key: Callable[[], str]
    make: Callable[[Callable[[str], None]], bytes]
    language: str
    smallest: int
    stack: int
    waits: bool
    prepares: bool = False


class Machine:
    """An engine, the guest, and a linker that knows WASI and the one host function.

    Args:
        answer: The host function: gets a store's context and the request, returns the answer.
        say: Hears what takes its time, where the guest has to be made first.
        store: Where compiled code is kept.
        kind: The guest; without, that of Python.

    Raises:
        CapsuleError: Wasmtime isn't there, or the guest can't be made or kept.
    """

    def __init__(
        self,
        answer: Callable[[int, bytes], bytes],
        *,
        say: Callable[[str], None],
        store: Store | None = None,
        kind: Kind | None = None,
    ) -> None:
        self._kind = kind or PYTHON
        self.smallest = self._kind.smallest
        self.needs = f"a {self._kind.language} task needs at least {-(-self.smallest >> 20)} MB"
        self.prepares = self._kind.prepares
        config = lib.wasm_config_new()
        lib.wasmtime_config_consume_fuel_set(config, True)
        lib.wasmtime_config_epoch_interruption_set(config, True)
        lib.wasmtime_config_wasm_component_model_set(config, True)
        lib.wasmtime_config_max_wasm_stack_set(config, self._kind.stack)
        if self._kind.waits:
            lib.wasmtime_config_wasm_component_model_async_set(config, True)
            lib.wasmtime_config_async_stack_size_set(config, self._kind.stack + _CALLBACK_STACK_BYTES)
        self.memories = Memories(self._kind.smallest)
        self.memories.serve(config)
        self.engine: int = lib.wasm_engine_new_with_config(config)
        self.store = store or Store()
        self.key = self._kind.key()
        self.component = self._load(say)
        self.linker: int = lib.wasmtime_component_linker_new(self.engine)
        check(lib.wasmtime_component_linker_add_wasip2(self.linker))
        self._callback = _host_function(answer)
        root = lib.wasmtime_component_linker_root(self.linker)
        check(
            lib.wasmtime_component_linker_instance_add_func(
                root, b"host", 4, self._callback, None, NO_FINALIZER
            )
        )
        lib.wasmtime_component_linker_instance_delete(root)
        self.export: int = lib.wasmtime_component_get_export_index(self.component, None, b"call", 4)

    def interrupt(self) -> None:
        """Make every running instance ask whether it shall go on."""
        lib.wasmtime_engine_increment_epoch(self.engine)

    def call(
        self,
        function: abi.FuncHandle,
        context: int,
        argument: abi.Val,
        result: abi.Val,
        stopped: Callable[[], bool],
    ) -> None:
        """Call an instance's function with one value, for one.

        Args:
            function: The function.
            context: Of its store.
            argument: What it is given.
            result: Where its answer goes.
            stopped: Says whether it shall end.

        Raises:
            WasmError: It ended otherwise.
        """
        taken = (ctypes.byref(function), context, ctypes.byref(argument), 1, ctypes.byref(result), 1)
        if not self._kind.waits:
            check(lib.wasmtime_component_func_call(*taken))
            return
        error = ctypes.c_void_p()
        future = lib.wasmtime_component_func_call_async(*taken, ctypes.byref(error))
        # Wasmtime comes back from time to time, and goes on when it is asked again. Nothing that a guest can
        # wait for comes from outside; where it waits for itself, Wasmtime ends it.
        done = lib.wasmtime_call_future_poll(future)
        while not done and not stopped():
            done = lib.wasmtime_call_future_poll(future)
        lib.wasmtime_call_future_delete(future)
        check(error.value)
        if not done:
            raise WasmError("it was stopped while it waited")

    def _load(self, say: Callable[[str], None]) -> int:
        store, key = self.store, self.key
        for _ in range(2):
            files = store.open(key)
            if files is None:
                prepare(store, key, self._kind.make, self._compile, say, language=self._kind.language)
                continue
            component = ctypes.c_void_p()
            try:
                # By the descriptor that was checked; the name may mean another file by now.
                path = f"/proc/self/fd/{files.code}".encode()
                error = lib.wasmtime_component_deserialize_file(self.engine, path, ctypes.byref(component))
                check(error)
            except WasmError as error:
                os.close(files.image)
                if not os.path.exists(path):
                    raise WasmError("Tasks need /proc, by which compiled code is opened.") from error
                # Compiled for another processor, in a home that machines share.
                store.remove(key)
                continue
            finally:
                os.close(files.code)
            if component.value is not None:
                self.memories.image = Image(files.image, os.fstat(files.image).st_size)
                return component.value
        raise WasmError("The compiled guest can't be kept, or isn't what was compiled.")

    def _compile(self, wasm: bytes) -> Guest:
        # Once on a machine: not on the way to a task.
        from .linking.errors import LinkError
        from .linking.linker import link
        from .linking.separating import separate

        try:
            wasm = link(wasm)
        except LinkError:
            # Its instances take longer to make, and are the same.
            pass
        separated = separate(wasm)
        component = ctypes.c_void_p()
        code = separated.code
        check(lib.wasmtime_component_new(self.engine, code, len(code), ctypes.byref(component)))
        serialized = abi.ByteVec()
        check(lib.wasmtime_component_serialize(component, ctypes.byref(serialized)))
        return Guest(abi.take_bytes(serialized), separated.image)


def guest_key() -> str:
    """Return the name that the compiled guest has in the store: it tells all that the code depends on."""
    return f"guest-{guest.digest()[:24]}-{FORMAT}-{os.uname().machine}"


def _ready_guest(say: Callable[[str], None]) -> bytes:
    # Not needed to run a task.
    from .making import ready_guest

    return ready_guest(say)


PYTHON: Final = Kind(
    guest_key,
    _ready_guest,
    "Python",
    START_BYTES,
    STACK_BYTES,
    waits=False,
    prepares=True,
)


def _host_function(answer: Callable[[int, bytes], bytes]) -> ctypes._FuncPointer:
    def call(
        _data: int | None,
        context: int,
        _type: int | None,
        arguments: ctypes._Pointer[abi.Val],
        _count: int,
        results: ctypes._Pointer[abi.Val],
        _results: int,
    ) -> int:
        try:
            if arguments[0].of.string.size > MAX_REQUEST_BYTES:
                return abi.new_error(f"A request has more than {MAX_REQUEST_BYTES} bytes.")
            abi.put_string(results[0], answer(context, abi.read_string(arguments[0])))
        except BaseException as error:
            return abi.new_error(f"host: {type(error).__name__}: {error}")
        return 0

    return HOST_CALLBACK(call)
