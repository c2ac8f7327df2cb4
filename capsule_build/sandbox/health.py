"""Whether tasks can run on this machine; getting the sandbox ready on the way."""

from __future__ import annotations

import hashlib
import shutil
import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..runtime.errors import CapsuleError
from ..runtime.files import write_atomically
from .machine import guest_key
from .making import make_guest, recorded_digest
from .modules import Modules
from .options import Policy
from .running import Context, machine, run_entry
from .source import TaskFile
from .store import Store
from .wasmtime_abi import VERSION, library_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TRIAL = "import sys\ndef main():\n    return sys.version.split()[0]\n"


class Check(NamedTuple):
    """One thing that was looked at: its name, whether it holds, what was found, and what to do about it."""

    name: str
    status: Literal["ok", "fail"]
    found: str
    advice: str | None = None


def examine(say: Callable[[str], None]) -> list[Check]:
    """Look at what tasks need. The first time on a machine this makes and compiles the guest."""
    checks: list[Check] = []
    for name, look in (("wasmtime", _wasmtime), ("guest", lambda: _guest(say)), ("task", lambda: _task(say))):
        try:
            checks.append(Check(name, "ok", look()))
        except CapsuleError as error:
            checks.append(Check(name, "fail", error.message, error.hint))
            break
    return checks


def make_and_compare(path: Path) -> Check:
    """Make the guest from its sources into a file, and say whether its bytes are the recorded ones."""
    try:
        wasm = make_guest()
        write_atomically(path, wasm)
    except CapsuleError as error:
        return Check("made", "fail", error.message, error.hint)
    except OSError as error:
        return Check("made", "fail", f"{path} can't be written: {error.strerror}.")
    made, recorded = hashlib.sha256(wasm).hexdigest(), recorded_digest()
    if made == recorded:
        return Check("made", "ok", f"{path} has the SHA-256 {made}, which is recorded.")
    return Check("made", "fail", f"{path} has the SHA-256 {made}; {recorded} is recorded.", _why())


def _why() -> str:
    if shutil.which("cc") is None:
        return "without a C compiler ('cc') it has other bytes each time, and works as well."
    return "its sources, or componentize-py's, were changed."


def _wasmtime() -> str:
    return f"Wasmtime {VERSION} at {library_path()}."


def _guest(say: Callable[[str], None]) -> str:
    machine(say)
    store, key = Store(), guest_key()
    there = f"{key}.cwasm is compiled, and private, in {store.root}."
    recorded, made = recorded_digest(), store.made_from(key)
    if made == recorded:
        return f"{there} Its WebAssembly is the recorded one."
    return f"{there} Its WebAssembly has the SHA-256 {made}, and not the recorded one: {_why()}"


def _task(say: Callable[[str], None]) -> str:
    file = TaskFile("trial.py", _TRIAL, {"main": Policy("main", "main", plain=True)}, "main", Modules(()))
    start = time.perf_counter()
    envelope = run_entry(Context(file, machine(say), ".", _drop, _drop), ())
    if not envelope["success"]:
        raise CapsuleError(f"A task that should succeed failed: {envelope['error']['message']}")
    return f"A task ran in {(time.perf_counter() - start) * 1000:.1f} ms, with Python {envelope['result']}."


def _drop(_first: object, _second: object) -> None:
    pass
