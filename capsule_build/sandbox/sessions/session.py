"""A session: its state between runs, its files, and what a run gives back."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...runtime.errors import UsageError
from ..languages import PYTHON
from ..options import make_policy
from .call import Call, SessionError
from .files import SessionFiles
from .python import PythonKind

if TYPE_CHECKING:
    import os
    from typing import Self

    from .kind import Kind

__all__ = ["DEFAULTS", "Session", "SessionError", "run_python"]

DEFAULTS: Final = {"compute": "HIGH", "ram": "512MB", "timeout": "30s"}
"""The limits of a run, where no others are given."""


class Session:
    """Runs pieces of code, each with what the runs before it have left.

    Every run has a new instance and the limits and grants of the session. Its variables, functions, classes
    and files are there for the next. A run that fails changes nothing.

    Args:
        language: `python`.
        options: Limits and grants, as `@task` has them, in place of `DEFAULTS`.

    Raises:
        UsageError: There is no such language, or an option is wrong.
    """

    def __init__(self, language: str = PYTHON, **options: Any) -> None:
        if language != PYTHON:
            raise UsageError(f"There are no sessions of {language!r}.", hint="Those of 'python' there are.")
        policy = make_policy(
            {**DEFAULTS, **options}, name="session", function="main", where="Session", plain=True
        )
        self._kind: Kind = PythonKind(policy)
        self._top = tempfile.TemporaryDirectory(prefix="capsule-session-")
        self._files = SessionFiles(Path(self._top.name))
        self._state: Any = None
        self._runs = 0
        self._one = threading.Lock()

    async def run(self, code: str) -> str:
        """Run a piece of code and return what it printed, and the value of its last expression behind that.

        Raises:
            SessionError: It failed, or what it leaves is too large.
            CapsuleError: The sandbox isn't usable.
        """
        call = Call()
        try:
            return await asyncio.to_thread(self._run, code, call)
        except asyncio.CancelledError:
            call.cancel()
            raise

    def import_file(self, source: str | os.PathLike[str], name: str | None = None) -> None:
        """Copy a file of this machine into the session's folder, which is the working folder of its runs.

        Args:
            source: The file.
            name: Its name there, also in folders; without, the one that it has.

        Raises:
            UsageError: The name leaves the folder.
            OSError: The file can't be read.
        """
        self._files.put(source, name)

    def export_file(self, name: str, target: str | os.PathLike[str]) -> None:
        """Copy a file of the session's folder to this machine.

        Raises:
            UsageError: There is no such file in it.
        """
        self._files.get(name, target)

    def delete_file(self, name: str) -> None:
        """Delete a file of the session's folder.

        Raises:
            UsageError: There is no such file in it.
        """
        self._files.delete(name)

    def reset(self) -> None:
        """Forget all variables and files."""
        with self._one:
            self._state, self._runs = None, 0
            self._files.clear()

    def close(self) -> None:
        """Delete its files. It can't be used any more."""
        self._top.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _run(self, code: str, call: Call) -> str:
        # The thread of a call that was cancelled comes to its end soon, and the next waits for that.
        with self._one:
            return self._run_alone(code, call)

    def _run_alone(self, code: str, call: Call) -> str:
        folder = self._files.begin()
        try:
            left = self._kind.run(code, self._state, self._runs + 1, folder, call)
            self._files.keep()
        finally:
            self._files.end()
        self._state, self._runs = left.state, self._runs + 1
        printed = call.printed()
        said = [printed.removesuffix("\n")] if printed else []
        if left.value is not None:
            said.append(left.value)
        if left.lost:
            said.append(f"(These can't be kept for the next run: {', '.join(left.lost)}.)")
        return "\n".join(said)


async def run_python(code: str, **options: Any) -> str:
    """Run a piece of Python in a sandbox, and return what it printed and the value of its last expression.

    Args:
        code: Its text.
        options: Limits and grants (see `Session`).

    Raises:
        SessionError: It failed.
    """
    async with Session(PYTHON, **options) as session:
        return await session.run(code)
