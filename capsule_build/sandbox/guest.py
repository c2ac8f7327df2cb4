"""The guest: CPython as a WebAssembly component, made from pinned inputs, with own modules in it."""

from __future__ import annotations

import _blake2
import os
import sys

from ..runtime.errors import CapsuleError
from . import wasmtime_abi as abi

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

COMPONENTIZE: Final = "0.25.1"
"""The version of componentize-py, which carries CPython 3.14 for WASI."""

PREBUILT: Final = "guest.wasm"
"""The name of a guest that a wheel has ready, beside its sources; `.digest` says what it was made from."""

_PROGRAM: Final = "import sys; from componentize_py import script; sys.exit(script())"


def sources() -> str:
    """Return the folder of the guest's own sources: `guest/` in a checkout, or the installed package's."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = f"{package}/_data/guest"
    return installed if os.path.isdir(installed) else f"{os.path.dirname(package)}/guest"


def prebuilt() -> str | None:
    """Return the path of a guest that came with the package, if it was made from these sources."""
    path = f"{sources()}/{PREBUILT}"
    try:
        with open(f"{path}.digest", "rb") as stream:
            made_from = stream.read().decode()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return path if made_from == digest() and os.path.isfile(path) else None


def files() -> dict[str, bytes]:
    """Return the guest's own sources by their names in their folder."""
    found = {}
    for folder in ("", "capsule/"):
        with os.scandir(f"{sources()}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".wit")):
                    with open(entry.path, "rb") as stream:
                        found[folder + entry.name] = stream.read()
    if "task.wit" not in found:
        raise CapsuleError(
            f"The guest's sources are missing from {sources()}.", hint="Install capsule-build again."
        )
    return found


def digest() -> str:
    """Return the BLAKE2b digest of what a guest is made from: own sources, and versions of the rest."""
    # Asked before every task, and `hashlib` loads OpenSSL, which takes longer than all else that is done.
    total = _blake2.blake2b(
        f"componentize-py=={COMPONENTIZE}\nwasmtime=={abi.VERSION}\n".encode(), digest_size=32
    )
    for name, content in sorted(files().items()):
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()


def make_guest() -> bytes:
    """Return the guest's WebAssembly: the one that came with the package, else one made now (10 s and more).

    Raises:
        CapsuleError: componentize-py isn't installed in the version that is pinned, or failed.
    """
    # Not needed to run a task.
    import importlib.metadata
    import tempfile
    from pathlib import Path

    from ..runtime.process import run

    ready = prebuilt()
    if ready is not None:
        return Path(ready).read_bytes()
    try:
        version = importlib.metadata.version("componentize-py")
    except importlib.metadata.PackageNotFoundError:
        version = "not installed"
    if version != COMPONENTIZE:
        raise CapsuleError(
            f"The guest is made by componentize-py {COMPONENTIZE}, and here it is {version}.",
            hint=f"pip install componentize-py=={COMPONENTIZE}",
        )
    with tempfile.TemporaryDirectory() as work:
        source, output = Path(work, "source"), Path(work, "guest.wasm")
        for name, content in sorted(files().items()):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(content)
        arguments = [
            "-d",
            "task.wit",
            "-w",
            "guest",
            "componentize",
            "capsule_guest",
            "-p",
            ".",
            "-o",
            str(output),
        ]
        # Without PATH and VIRTUAL_ENV, since it would add the packages of a Python that it finds to the
        # guest.
        run(
            [sys.executable, "-c", _PROGRAM, *arguments],
            env={"PATH": "", "HOME": work, "TMPDIR": work},
            cwd=source,
            timeout=600,
        )
        return output.read_bytes()


def write_prebuilt() -> str:
    """Make the guest and put it beside its sources, for a wheel that has it ready; return its path.

    Raises:
        CapsuleError: It can't be made.
    """
    from pathlib import Path

    from ..runtime.files import write_atomically

    path = Path(sources(), PREBUILT)
    write_atomically(path, make_guest())
    write_atomically(path.with_name(f"{PREBUILT}.digest"), digest().encode())
    return str(path)
