"""Whether tasks can run on this machine, in each language; getting the sandbox ready on the way."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ..runtime.errors import CapsuleError
from ..runtime.files import write_atomically
from ..runtime.health import Check
from . import making as python
from .javascript import making as javascript
from .javascript.guest import guest_key as javascript_key
from .javascript.loading import load_javascript
from .javascript.program import bundler
from .languages import JAVASCRIPT, PYTHON
from .machine import guest_key as python_key
from .modules import Modules
from .options import Policy
from .project import Project
from .running import Context, machine, run_entry
from .source import TaskFile
from .store import Store
from .wasmtime_abi import VERSION, library_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Say = Callable[[str], None]
    Look = Callable[[Say], str]
    Looks = Iterable[tuple[str, Look]]

_PYTHON_TRIAL: Final = "import sys\ndef main():\n    return f'Python {sys.version.split()[0]}'\n"
_TYPESCRIPT_TRIAL: Final = """import { task } from "@capsule-build/sdk";
export const main = task({ name: "main" }, (): string => "TypeScript");
"""


_DEFECT: Final = "This is a defect. Please report it."


class _Guest(NamedTuple):
    """What there is to know of a language's guest.

    Attributes:
        key: Returns the name that the compiled guest has in the store.
        make: Makes it from its sources.
        recorded: Returns the SHA-256 that it has by the record.
        file: The name that one has that is made to be compared.
        others: What its bytes depend on, beside its own sources.
    """

    key: Callable[[], str]
    make: Callable[[], bytes]
    recorded: Callable[[], str]
    file: str
    others: str


_GUESTS: Final = {
    PYTHON: _Guest(python_key, python.make_guest, python.recorded_digest, "python.wasm", "componentize-py's"),
    JAVASCRIPT: _Guest(
        javascript_key,
        javascript.make_guest,
        javascript.recorded_digest,
        "javascript.wasm",
        "its pinned inputs'",
    ),
}


def examine(say: Say) -> list[Check]:
    """Look at what tasks need. The first time on a machine this makes and compiles the guests.

    That JavaScript's tasks can't run is a warning: Python's need nothing of theirs.
    """
    checks = list(_looked(say, "fail", [("wasmtime", _wasmtime)]))
    if checks[-1].status != "ok":
        return checks
    in_python = [("python guest", _guest_of(PYTHON)), ("python task", _python_task)]
    in_javascript = [
        ("javascript guest", _guest_of(JAVASCRIPT)),
        ("javascript bundler", _bundler),
        ("javascript task", _javascript_task),
    ]
    return [*checks, *_looked(say, "fail", in_python), *_looked(say, "warn", in_javascript)]


def _looked(say: Say, otherwise: Literal["warn", "fail"], looks: Looks) -> Iterable[Check]:
    """Look at one after the other. What needs one that can't be used isn't looked at."""
    for name, look in looks:
        try:
            yield Check(name, "ok", look(say))
        except CapsuleError as error:
            yield Check(name, otherwise, error.message, error.hint)
            return
        except Exception as error:  # what one look meets must not keep the others from being told
            yield Check(name, otherwise, f"It failed: {type(error).__name__}: {error}", _DEFECT)
            return


def make_and_compare(folder: Path) -> list[Check]:
    """Make the guests from their sources into a folder, and hold their digests against the recorded ones."""
    return [
        _made(f"made {language} guest", folder / guest.file, guest) for language, guest in _GUESTS.items()
    ]


def _made(name: str, path: Path, guest: _Guest) -> Check:
    try:
        wasm = guest.make()
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, wasm)
    except CapsuleError as error:
        return Check(name, "fail", error.message, error.hint)
    except OSError as error:
        return Check(name, "fail", f"{path} can't be written: {error.strerror}.")
    made, recorded = hashlib.sha256(wasm).hexdigest(), guest.recorded()
    if made == recorded:
        return Check(name, "ok", f"{path} has the SHA-256 {made}, which is recorded.")
    return Check(name, "fail", f"{path} has the SHA-256 {made}; {recorded} is recorded.", _why(guest))


def _why(guest: _Guest) -> str:
    if shutil.which("cc") is None:
        return "Without a C compiler ('cc') it has other bytes each time, and works as well."
    return f"Its sources, or {guest.others}, were changed."


def _wasmtime(_say: Say) -> str:
    return f"Wasmtime {VERSION} at {library_path()}."


def _guest_of(language: str) -> Look:
    def look(say: Say) -> str:
        machine(say, language)
        guest, store = _GUESTS[language], Store()
        key = guest.key()
        there = f"{key}.cwasm is compiled, and private, in {store.root}."
        made = store.made_from(key)
        if made == guest.recorded():
            return f"{there} Its WebAssembly is the recorded one."
        return f"{there} Its WebAssembly has the SHA-256 {made}, and not the recorded one. {_why(guest)}"

    return look


def _bundler(say: Say) -> str:
    return f"{bundler(Store(), say)} makes one text of a file and what it imports."


def _python_task(say: Say) -> str:
    tasks = {"main": Policy("main", "main", plain=True)}
    return _ran(TaskFile("trial.py", _PYTHON_TRIAL, tasks, "main", Modules(())), say, PYTHON)


def _javascript_task(say: Say) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trial.ts")
        path.write_text(_TYPESCRIPT_TRIAL)
        file = load_javascript(str(path), Project(), machine(say, JAVASCRIPT), say).file
    return _ran(file, say, JAVASCRIPT)


def _ran(file: TaskFile, say: Say, language: str) -> str:
    start = time.perf_counter()
    envelope = run_entry(Context(file, machine(say, language), ".", _drop, _drop), ())
    if not envelope["success"]:
        raise CapsuleError(f"A task that should succeed failed: {envelope['error']['message']}")
    return f"A task ran in {(time.perf_counter() - start) * 1000:.1f} ms: {envelope['result']}."


def _drop(_first: object, _second: object) -> None:
    pass
