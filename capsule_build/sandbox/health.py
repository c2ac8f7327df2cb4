"""Whether tasks can run on this machine; getting the sandbox ready on the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..runtime.errors import CapsuleError
from .machine import guest_key
from .modules import Modules
from .options import Policy
from .running import Context, machine, run_entry
from .source import TaskFile
from .store import Store
from .wasmtime_abi import VERSION, library_path

if TYPE_CHECKING:
    from collections.abc import Callable

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


def _wasmtime() -> str:
    return f"Wasmtime {VERSION} at {library_path()}."


def _guest(say: Callable[[str], None]) -> str:
    machine(say)
    return f"{guest_key()}.cwasm is compiled, and private, in {Store().root}."


def _task(say: Callable[[str], None]) -> str:
    file = TaskFile("trial.py", _TRIAL, {"main": Policy("main", "main", plain=True)}, "main", Modules(()))
    start = time.perf_counter()
    envelope = run_entry(Context(file, machine(say), ".", _drop, _drop), ())
    if not envelope["success"]:
        raise CapsuleError(f"A task that should succeed failed: {envelope['error']['message']}")
    return f"A task ran in {(time.perf_counter() - start) * 1000:.1f} ms, with Python {envelope['result']}."


def _drop(_first: object, _second: object) -> None:
    pass
