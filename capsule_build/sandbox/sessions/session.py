"""A session: its state between runs, its files, and what a run gives back."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...runtime.errors import UsageError
from ..languages import JAVASCRIPT, PYTHON
from ..options import OPTIONS as TASK_OPTIONS
from ..options import make_policy
from .call import CANCELLED, Call, SessionError
from .files import SessionFiles
from .folders import MAX_BYTES, TooLargeError
from .javascript import JavaScriptKind
from .python import PythonKind
from .turns import Turns

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    from ..options import Policy
    from .kind import Kind

__all__ = ["DEFAULTS", "Session", "SessionError", "run_javascript", "run_python"]

_Result = TypeVar("_Result")

DEFAULTS: Final = {"compute": "HIGH", "ram": "512MB", "timeout": "30s"}
"""The limits of a run, where no others are given."""

_KINDS: Final[dict[str, Callable[[Policy], Kind]]] = {PYTHON: PythonKind, JAVASCRIPT: JavaScriptKind}


OPTIONS: Final = tuple(option for option in TASK_OPTIONS if option != "max_retries")
"""The names of the options of a run."""


def run_policy(options: Mapping[str, Any], where: str) -> Policy:
    """Return the limits and grants of a run, which may take the place of `DEFAULTS`.

    Args:
        options: As `@task` has them.
        where: The place that an error names.

    Raises:
        UsageError: An option is wrong.
    """
    if "max_retries" in options:
        raise UsageError(
            f"{where}: there is no max_retries: a run isn't tried again. It would print twice, and find what "
            "the first try wrote."
        )
    for option in options:
        if option not in OPTIONS:
            raise UsageError(f"{where}: there is no option '{option}'. Options: {', '.join(OPTIONS)}.")
    return make_policy({**DEFAULTS, **options}, name="session", function="main", where=where, plain=True)


class Session:
    """Runs pieces of code, each with what the runs before it have left.

    Every run has a new instance and the limits and grants of the session. Its variables, functions, classes
    and files are there for the next. A run that fails changes nothing.

    Args:
        language: `python` or `javascript`.
        options: Limits and grants, as `@task` has them, in place of `DEFAULTS`.

    Raises:
        UsageError: There is no such language, or an option is wrong.
    """

    def __init__(self, language: str = PYTHON, **options: Any) -> None:
        if language not in _KINDS:
            known = " and ".join(map(repr, _KINDS))
            raise UsageError(f"There are no sessions of {language!r}.", hint=f"Those of {known} there are.")
        self._kind: Kind = _KINDS[language](run_policy(options, "Session"))
        self._top = tempfile.TemporaryDirectory(prefix="capsule-session-")
        self._files = SessionFiles(Path(self._top.name))
        self._state: Any = None
        self._runs = 0
        self._one = threading.Lock()
        self._turns = Turns()
        self._closed = False

    async def run(self, code: str) -> str:
        """Run a piece of code and return what it printed, and the value of its last expression behind that.

        Raises:
            SessionError: It failed, or what it leaves is too large.
            CapsuleError: The sandbox isn't usable.
        """
        return await self._run(code, Call())

    def import_file(self, source: str | os.PathLike[str], name: str | None = None) -> None:
        """Copy a file of this machine into the session's folder, which is the working folder of its runs.

        Args:
            source: The file.
            name: Its name there, also in folders; without, the one that it has.

        Raises:
            UsageError: The name leaves the folder.
            CapsuleError: The folder would have more than it may.
            OSError: The file can't be read.
        """
        with self._open():
            self._files.put(source, name)

    def write_file(self, name: str, content: bytes | str) -> None:
        """Make a file of the session's folder.

        Args:
            name: Its name there.
            content: Its bytes, or a text, which is written in UTF-8.

        Raises:
            UsageError: The name leaves the folder, or the content is neither.
            CapsuleError: The folder would have more than it may.
        """
        with self._open():
            self._files.put_bytes(_bytes(content), name)

    def export_file(self, name: str, target: str | os.PathLike[str]) -> None:
        """Copy a file of the session's folder to this machine.

        Raises:
            UsageError: There is no such file in it.
        """
        with self._open():
            self._files.get(name, target)

    def read_file(self, name: str, *, limit: int = MAX_BYTES) -> bytes:
        """Return what a file of the session's folder has.

        Args:
            name: Its name there.
            limit: How many bytes it may have; without, what the folder may.

        Raises:
            UsageError: There is no such file in it, or it has more bytes than the limit.
        """
        with self._open():
            return self._files.get_bytes(name, limit)

    def list_files(self) -> dict[str, int]:
        """Return the files of the session's folder: their names, and their sizes in bytes."""
        with self._open():
            return self._files.names()

    def delete_file(self, name: str) -> None:
        """Delete a file of the session's folder.

        Raises:
            UsageError: There is no such file in it.
        """
        with self._open():
            self._files.delete(name)

    def reset(self) -> None:
        """Forget all variables and files."""
        with self._open():
            self._state, self._runs = None, 0
            self._files.clear()

    def close(self) -> None:
        """Delete its files. It can't be used any more."""
        with self._one:
            self._closed = True
            if Path(self._top.name).exists():
                self._files.remove()
            self._top.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def run_last(self, code: str) -> str:
        """Run a piece of code that no other one follows upon: none of its variables has to be kept."""
        return await self._run(code, Call(last=True))

    async def in_turn(self, act: Callable[[], _Result]) -> _Result:
        """Do something with the session on a thread, behind the runs that were asked for before."""
        return await self._turns.take(act)

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Have the session to oneself.

        Raises:
            UsageError: It is closed.
        """
        with self._one:
            if self._closed:
                raise UsageError("This session is closed.", hint="Make another one.")
            yield

    async def _run(self, code: str, call: Call) -> str:
        try:
            return await self.in_turn(lambda: self._run_alone(code, call))
        except asyncio.CancelledError:
            call.cancel()
            raise

    def _run_alone(self, code: str, call: Call) -> str:
        # The thread of a call that was cancelled comes to its end soon, and the next waits for that.
        with self._open():
            try:
                left = self._kind.run(code, self._state, self._runs + 1, self._files.begin(), call)
            except SessionError as error:
                if error.error_type == "timeout":
                    # Its instance may have been abandoned, in a call of the system that isn't over.
                    self._files.give_up()
                raise
            if call.cancelled:
                raise call.failure("timeout", CANCELLED)
            try:
                self._files.keep()
            except TooLargeError as error:
                raise call.failure("task_error", error.message) from None
            self._state, self._runs = left.state, self._runs + 1
        return call.said(left.value, left.lost)


def _bytes(content: bytes | str) -> bytes:
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"The content is no Unicode text: {error}.") from None
    if not isinstance(content, bytes | bytearray | memoryview):
        raise UsageError(f"What is written to a file is bytes or a text, and no {type(content).__name__}.")
    return bytes(content)


async def run_python(code: str, **options: Any) -> str:
    """Run a piece of Python in a sandbox, and return what it printed and the value of its last expression.

    Args:
        code: Its text.
        options: Limits and grants (see `Session`).

    Raises:
        SessionError: It failed.
    """
    async with Session(PYTHON, **options) as session:
        return await session.run_last(code)


async def run_javascript(code: str, **options: Any) -> str:
    """Run a piece of JavaScript in a sandbox: see `run_python`."""
    async with Session(JAVASCRIPT, **options) as session:
        return await session.run_last(code)
