"""The part of Wasmtime's C interface that a task needs, bound by hand.

The package `wasmtime` brings the library, and this module loads it without importing that package: its own
bindings declare everything that Wasmtime has, which takes several times as long as a whole task. Format:
`wasmtime.h`, `wasmtime/component.h` and `wasi.h` of the exact version that `VERSION` names; with any other
the layout of a structure may differ, so another is refused.
"""

from __future__ import annotations

import ctypes
import os
import sys

from ..runtime.errors import CapsuleError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

VERSION: Final = "50.0.1"
"""The version of Wasmtime whose structures are described here."""

STRING_KIND: Final = 12
"""The kind of a component value that is a string."""

Pointer = ctypes.c_void_p


class ByteVec(ctypes.Structure):
    """`wasm_byte_vec_t`: bytes that belong to whom the function says."""

    _fields_ = (("size", ctypes.c_size_t), ("data", ctypes.c_void_p))


class _ValUnion(ctypes.Union):
    # The largest members have three words (a variant: a name and a pointer).
    _fields_ = (("string", ByteVec), ("words", ctypes.c_uint64 * 3))


class Val(ctypes.Structure):
    """`wasmtime_component_val_t`; only its strings are used."""

    _fields_ = (("kind", ctypes.c_uint8), ("of", _ValUnion))


class InstanceHandle(ctypes.Structure):
    """`wasmtime_component_instance_t`."""

    _fields_ = (("store_id", ctypes.c_uint64), ("private", ctypes.c_uint32))


class FuncHandle(ctypes.Structure):
    """`wasmtime_component_func_t`: a handle of an instance's function."""

    _fields_ = (
        ("instance", InstanceHandle),
        ("private2", ctypes.c_uint32),
        ("private3", ctypes.c_void_p),
    )


HOST_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.POINTER(Val),
    ctypes.c_size_t,
    ctypes.POINTER(Val),
    ctypes.c_size_t,
)
"""A function of the host, as `wasmtime_component_func_callback_t`: returns an error to own, or 0."""

EPOCH_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint8),
)
"""What is asked when a store's deadline comes: returns an error to own, or 0 and by how much to go on."""

OUTPUT_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
"""What gets the guest's standard output and error."""

FINALIZER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NO_FINALIZER: Final = FINALIZER()

MEMORY_GET_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
"""What tells of a memory of the host: returns its address, gives its size, and what it can grow to."""

MEMORY_GROW_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
"""What makes such a memory so many bytes large: returns an error to own, or 0."""


class LinearMemory(ctypes.Structure):
    """`wasmtime_linear_memory_t`."""

    _fields_ = (
        ("environment", ctypes.c_void_p),
        ("get", MEMORY_GET_CALLBACK),
        ("grow", MEMORY_GROW_CALLBACK),
        ("finalizer", FINALIZER),
    )


NEW_MEMORY_CALLBACK: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.POINTER(LinearMemory),
)
"""What makes one: gets its least and most bytes, those to reserve and to guard it; returns an error, or 0."""


class MemoryCreator(ctypes.Structure):
    """`wasmtime_memory_creator_t`."""

    _fields_ = (
        ("environment", ctypes.c_void_p),
        ("new_memory", NEW_MEMORY_CALLBACK),
        ("finalizer", FINALIZER),
    )


_P, _SIZE, _BOOL, _NAME = Pointer, ctypes.c_size_t, ctypes.c_bool, ctypes.c_char_p
_I64, _U64 = ctypes.c_int64, ctypes.c_uint64
_STRINGS = ctypes.POINTER(ctypes.c_char_p)

# Name: what it returns, what it takes. An error is a pointer that is null when there is none.
_FUNCTIONS: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "wasm_byte_vec_new": (None, (_P, _SIZE, _NAME)),
    "wasm_byte_vec_delete": (None, (_P,)),
    "wasm_config_new": (_P, ()),
    "wasm_engine_new_with_config": (_P, (_P,)),
    "wasmtime_call_future_delete": (None, (_P,)),
    "wasmtime_call_future_poll": (_BOOL, (_P,)),
    "wasmtime_config_async_stack_size_set": (None, (_P, _SIZE)),
    "wasmtime_config_consume_fuel_set": (None, (_P, _BOOL)),
    "wasmtime_config_epoch_interruption_set": (None, (_P, _BOOL)),
    "wasmtime_config_host_memory_creator_set": (None, (_P, _P)),
    "wasmtime_config_max_wasm_stack_set": (None, (_P, _SIZE)),
    "wasmtime_config_wasm_component_model_async_set": (None, (_P, _BOOL)),
    "wasmtime_config_wasm_component_model_set": (None, (_P, _BOOL)),
    "wasmtime_engine_increment_epoch": (None, (_P,)),
    "wasmtime_error_new": (_P, (_NAME,)),
    "wasmtime_error_delete": (None, (_P,)),
    "wasmtime_error_message": (None, (_P, _P)),
    "wasmtime_error_exit_status": (_BOOL, (_P, _P)),
    "wasmtime_component_new": (_P, (_P, _NAME, _SIZE, _P)),
    "wasmtime_component_serialize": (_P, (_P, _P)),
    "wasmtime_component_deserialize_file": (_P, (_P, _NAME, _P)),
    "wasmtime_component_get_export_index": (_P, (_P, _P, _NAME, _SIZE)),
    "wasmtime_component_linker_new": (_P, (_P,)),
    "wasmtime_component_linker_add_wasip2": (_P, (_P,)),
    "wasmtime_component_linker_root": (_P, (_P,)),
    "wasmtime_component_linker_instance_add_func": (_P, (_P, _NAME, _SIZE, HOST_CALLBACK, _P, FINALIZER)),
    "wasmtime_component_linker_instance_delete": (None, (_P,)),
    "wasmtime_component_linker_instantiate": (_P, (_P, _P, _P, _P)),
    "wasmtime_component_instance_get_func": (_BOOL, (_P, _P, _P, _P)),
    "wasmtime_component_func_call": (_P, (_P, _P, _P, _SIZE, _P, _SIZE)),
    "wasmtime_component_func_call_async": (_P, (_P, _P, _P, _SIZE, _P, _SIZE, _P)),
    "wasmtime_component_val_delete": (None, (_P,)),
    "wasmtime_store_new": (_P, (_P, _P, FINALIZER)),
    "wasmtime_store_context": (_P, (_P,)),
    "wasmtime_store_delete": (None, (_P,)),
    "wasmtime_store_limiter": (None, (_P, _I64, _I64, _I64, _I64, _I64)),
    "wasmtime_store_epoch_deadline_callback": (None, (_P, EPOCH_CALLBACK, _P, FINALIZER)),
    "wasmtime_context_get_data": (_P, (_P,)),
    "wasmtime_context_set_fuel": (_P, (_P, _U64)),
    "wasmtime_context_get_fuel": (_P, (_P, _P)),
    "wasmtime_context_set_wasi": (_P, (_P, _P)),
    "wasmtime_context_set_epoch_deadline": (None, (_P, _U64)),
    "wasi_config_new": (_P, ()),
    "wasi_config_delete": (None, (_P,)),
    "wasi_config_set_argv": (_BOOL, (_P, _SIZE, _STRINGS)),
    "wasi_config_set_env": (_BOOL, (_P, _SIZE, _STRINGS, _STRINGS)),
    "wasi_config_set_stdout_custom": (None, (_P, OUTPUT_CALLBACK, _P, FINALIZER)),
    "wasi_config_set_stderr_custom": (None, (_P, OUTPUT_CALLBACK, _P, FINALIZER)),
    "wasi_config_preopen_dir": (_BOOL, (_P, _NAME, _NAME, _BOOL)),
}


class WasmError(CapsuleError):
    """Wasmtime ended a call, or refused to begin one.

    Attributes:
        exit_status: What the guest gave to `exit`, where that ended it.
    """

    def __init__(self, message: str, *, exit_status: int | None = None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def library_path() -> str:
    """Return the path of Wasmtime's library.

    Raises:
        CapsuleError: It isn't installed, or is of another version.
    """
    for folder in sys.path:
        package = os.path.join(folder or ".", "wasmtime")
        library = f"{package}/linux-{os.uname().machine}/_libwasmtime.so"
        if os.path.exists(library):
            if not os.path.exists(f"{package}-{VERSION}.dist-info"):
                break
            return library
    raise CapsuleError(
        f"Wasmtime {VERSION} for {os.uname().machine} isn't installed.",
        hint=f"capsule-build brings it; 'pip install wasmtime=={VERSION}' mends it.",
    )


class _Library:
    """The functions, by their names; the library is loaded, and each is found, when it is first used."""

    _dll: ctypes.CDLL | None = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if self._dll is None:
            self._dll = ctypes.CDLL(library_path())
        result, arguments = _FUNCTIONS[name]
        function = getattr(self._dll, name)
        function.restype, function.argtypes = result, list(arguments)
        setattr(self, name, function)
        return function  # type: ignore[no-any-return]  # ctypes types its functions as Any


lib = _Library()


def check(error: int | None) -> None:
    """Raise what Wasmtime reported, if it did.

    Raises:
        WasmError: It did. The message is Wasmtime's, without its trace of frames.
    """
    if not error:
        return
    status = ctypes.c_int()
    exited = lib.wasmtime_error_exit_status(error, ctypes.byref(status))
    message = ByteVec()
    lib.wasmtime_error_message(error, ctypes.byref(message))
    text = take_bytes(message).decode("utf-8", "replace")
    lib.wasmtime_error_delete(error)
    raise WasmError(text, exit_status=status.value if exited else None)


def new_error(message: str) -> int:
    """Return an error that a callback hands over to Wasmtime, which ends the guest."""
    error: int = lib.wasmtime_error_new(message.encode("utf-8", "replace").replace(b"\0", b""))
    return error


def take_bytes(vector: ByteVec) -> bytes:
    """Return what a vector holds, and free it."""
    data = ctypes.string_at(vector.data, vector.size) if vector.size else b""
    lib.wasm_byte_vec_delete(ctypes.byref(vector))
    return data


def borrowed_string(data: bytes) -> Val:
    """Return a string value for an argument. It reads `data`, which must outlive it."""
    value = Val(kind=STRING_KIND)
    value.of.string.size = len(data)
    value.of.string.data = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p)
    return value


def read_string(value: Any) -> bytes:
    """Return the bytes of a string value, which stays its owner's."""
    if value.kind != STRING_KIND:
        raise WasmError("The guest gave a value that isn't a string.")
    string = value.of.string
    return ctypes.string_at(string.data, string.size) if string.size else b""


def put_string(value: Any, data: bytes) -> None:
    """Fill in a string value that Wasmtime will own."""
    value.kind = STRING_KIND
    lib.wasm_byte_vec_new(ctypes.byref(value.of.string), len(data), data)


def strings(values: list[bytes]) -> Any:
    """Return an array of C strings."""
    return (ctypes.c_char_p * len(values))(*values)
