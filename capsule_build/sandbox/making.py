"""Makes the guest from pinned inputs: where there is a C compiler, the same bytes each time and everywhere.

`guest/steady.c` says what they would depend on. Their digest is recorded in `guest/guest.sha256`: so what one
machine makes can be compared with what another one made, and with what a wheel brings.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.errors import CapsuleError
from ..runtime.process import run
from . import guest, prebuilt

if TYPE_CHECKING:
    from collections.abc import Callable

_COMPONENTIZE = (
    "import sys; sys.path.append(sys.argv.pop(1)); from componentize_py import script; sys.exit(script())"
)
_STEADY = "steady.c"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
_SECONDS = 900


def recorded_digest() -> str:
    """Return the SHA-256 that the guest has, in hexadecimal, as it is recorded."""
    return guest.recorded(guest.sources())


def ready_guest(say: Callable[[str], None]) -> bytes:
    """Return the guest that came with the package, else one that is made now.

    Raises:
        CapsuleError: The one that came isn't the recorded one; or componentize-py isn't installed in the
            version that is pinned, or failed.
    """
    return prebuilt.ready(guest.sources(), make_guest, say, language="Python")


def make_guest(*, need_compiler: bool = False) -> bytes:
    """Make the guest from its sources.

    Args:
        need_compiler: Whether it is an error that there is no C compiler. Without one the guest works as
            well, but has other bytes each time.

    Raises:
        CapsuleError: componentize-py isn't installed in the version that is pinned, or failed; or there is no
            compiler.
    """
    program = componentizer()
    with tempfile.TemporaryDirectory() as work:
        source, output = Path(work, "source"), Path(work, "guest.wasm")
        # The guest sees what lies in its folder: nothing but its own.
        for name, content in sorted(guest.files().items()):
            if name == _STEADY:
                continue
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        # Without PATH and VIRTUAL_ENV: it would add the packages of a Python that it finds to the guest.
        environment = steady_environment(Path(work), need_compiler=need_compiler)
        words = ["-d", "task.wit", "-w", "guest", "componentize", "capsule_guest"]
        words += ["-p", ".", "-o", str(output)]
        run([*program, *words], env=environment, cwd=source, timeout=_SECONDS)
        return output.read_bytes()


def componentizer() -> list[str]:
    """Return the command that is componentize-py, without its arguments, for any environment.

    It says which folder the package is in: in pip's isolated builds only their own PYTHONPATH names that.

    Raises:
        CapsuleError: It isn't installed in the version that is pinned.
    """
    found = "not installed"
    try:
        installed = importlib.metadata.distribution("componentize-py")
        found = installed.version
        if found == guest.COMPONENTIZE:
            return [sys.executable, "-c", _COMPONENTIZE, str(installed.locate_file(""))]
    except importlib.metadata.PackageNotFoundError:
        pass
    raise CapsuleError(
        f"The guest is made by componentize-py {guest.COMPONENTIZE}, and here it is {found}.",
        hint=f"{sys.executable} -m pip install componentize-py=={guest.COMPONENTIZE}",
    )


def steady_environment(work: Path, *, need_compiler: bool) -> dict[str, str]:
    """Return the environment that a guest is made in.

    With a C compiler it is one where random bytes, times and the order of files are always the same.

    Args:
        work: A folder for what is made on the way.
        need_compiler: Whether it is an error that there is none.

    Raises:
        CapsuleError: There is none.
    """
    environment = {"PATH": "", "HOME": str(work), "TMPDIR": str(work)}
    compiler = shutil.which("cc")
    if compiler is None:
        if need_compiler:
            raise CapsuleError(
                "There is no C compiler 'cc', without which the guest's bytes would differ each time.",
                hint="Debian: apt-get install gcc libc6-dev",
            )
        return environment
    library = work / "steady.so"
    run([compiler, *_FLAGS, "-o", str(library), str(Path(guest.sources(), _STEADY))])
    return {**environment, "LD_PRELOAD": str(library)}
