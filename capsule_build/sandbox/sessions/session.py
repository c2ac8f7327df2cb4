"""A session: its state between runs, its files, and what a run gives back."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import stat
import sys
import tempfile
import threading
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from ...runtime.errors import CapsuleError, UsageError
from ..grants import Mount
from ..languages import PYTHON
from ..modules import Modules, Source
from ..options import make_policy
from ..running import Context, machine, run_entry
from ..source import TaskFile
from ..trees import FolderTree

if TYPE_CHECKING:
    import os
    from typing import Self

    from ..instance import Instance

MAX_STATE_CHARACTERS: Final = 64 << 20
"""Of what a run leaves for the next, in base64."""

MAX_PRINTED_BYTES: Final = 16 << 20
"""Of what a run prints. What is beyond is left out, which is said."""

DEFAULTS: Final = {"compute": "HIGH", "ram": "512MB", "timeout": "30s"}
"""The limits of a run, where no others are given."""

_FOLDER: Final = "/workspace"
_SOURCE: Final = Path(__file__).with_name("python_run.py")


class SessionError(CapsuleError):
    """A run failed. It changed nothing.

    Attributes:
        error_type: As in an envelope.
        printed: What it had printed.
    """

    def __init__(self, message: str, *, error_type: str, printed: str) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.printed = printed


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
        source = _SOURCE.read_text(encoding="utf-8")
        self._file = TaskFile("session.py", source, {"session": policy}, "session", _modules())
        self._top = tempfile.TemporaryDirectory(prefix="capsule-session-")
        self._state: str | None = None
        self._runs = 0
        self._one = threading.Lock()
        self._files.mkdir()

    @property
    def _files(self) -> Path:
        return Path(self._top.name, "files")

    async def run(self, code: str) -> str:
        """Run a piece of code and return what it printed, and the value of its last expression behind that.

        Raises:
            SessionError: It failed, or what it leaves is too large.
            CapsuleError: The sandbox isn't usable.
        """
        call = _Call()
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
        target = self._inside(name or Path(source).name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def export_file(self, name: str, target: str | os.PathLike[str]) -> None:
        """Copy a file of the session's folder to this machine.

        Raises:
            UsageError: There is no such file in it.
        """
        source = self._inside(name)
        self._require_file(source, name)
        shutil.copyfile(source, target, follow_symlinks=False)

    def delete_file(self, name: str) -> None:
        """Delete a file of the session's folder.

        Raises:
            UsageError: There is no such file in it.
        """
        path = self._inside(name)
        self._require_file(path, name)
        path.unlink()

    def reset(self) -> None:
        """Forget all variables and files."""
        with self._one:
            self._state, self._runs = None, 0
            shutil.rmtree(self._files)
            self._files.mkdir()

    def close(self) -> None:
        """Delete its files. It can't be used any more."""
        self._top.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _inside(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in name:
            raise UsageError(f"{name!r} is no name of a file in the session's folder.")
        path = self._files.joinpath(*parts)
        # A run may have made a link that leads elsewhere.
        if not path.parent.resolve().is_relative_to(self._files.resolve()) or path.is_symlink():
            raise UsageError(f"{name!r} leads out of the session's folder by a symlink.")
        return path

    @staticmethod
    def _require_file(path: Path, name: str) -> None:
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = 0
        if not stat.S_ISREG(mode):
            raise UsageError(f"There is no file {name!r} in the session's folder.")

    def _run(self, code: str, call: _Call) -> str:
        # The thread of a call that was cancelled comes to its end soon, and the next waits for that.
        with self._one:
            return self._run_alone(code, call)

    def _run_alone(self, code: str, call: _Call) -> str:
        # On a copy, which takes the place of the folder when the run has succeeded.
        copy = Path(self._top.name, "run")
        shutil.copytree(self._files, copy, symlinks=True)
        try:
            printed, answer = self._answered(code, copy, call)
            failed = answer.get("failed")
            if failed is not None:
                raise SessionError(str(failed), error_type="task_error", printed=printed)
            state, value, lost = answer["state"], answer["value"], answer["lost"]
            if not isinstance(state, str) or len(state) > MAX_STATE_CHARACTERS:
                message = f"What the run leaves has more than {MAX_STATE_CHARACTERS} characters."
                raise SessionError(message, error_type="memory_exceeded", printed=printed)
            shutil.rmtree(self._files)
            copy.rename(self._files)
        finally:
            if copy.exists():
                shutil.rmtree(copy)
        self._state, self._runs = state, self._runs + 1
        said = [printed.removesuffix("\n")] if printed else []
        if isinstance(value, str):
            said.append(value)
        if lost:
            said.append(f"(These can't be kept for the next run: {', '.join(map(str, lost))}.)")
        return "\n".join(said)

    def _answered(self, code: str, folder: Path, call: _Call) -> tuple[str, dict[str, Any]]:
        heard = _Heard()
        context = Context(
            self._file,
            machine(_say),
            str(Path.cwd()),
            heard.hear,
            lambda _task, _state: None,
            begun=call.begin,
        )
        mounts = [Mount(str(folder), _FOLDER, writable=True)]
        if call.cancelled:
            raise SessionError("The run was cancelled.", error_type="timeout", printed="")
        envelope = run_entry(context, [code, self._state, self._runs + 1], mounts=mounts)
        error, answer = envelope["error"], envelope["result"]
        if error is None and not (isinstance(answer, dict) and ("failed" in answer or "state" in answer)):
            error = {"error_type": "wasm_error", "message": "The guest gave an answer that isn't one."}
        if error is not None:
            raise SessionError(error["message"], error_type=error["error_type"], printed=heard.text())
        return heard.text(), answer


class _Call:
    """A run that may be cancelled, at any time."""

    def __init__(self) -> None:
        self.cancelled = False
        self._instance: Instance | None = None

    def begin(self, instance: Instance) -> None:
        self._instance = instance
        if self.cancelled:
            instance.cancel("cancelled")

    def cancel(self) -> None:
        self.cancelled = True
        if self._instance is not None:
            self._instance.cancel("cancelled")


class _Heard:
    """What a run prints on standard output."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def hear(self, number: int, data: bytes) -> None:
        if number == 1:
            if self._size < MAX_PRINTED_BYTES:
                self._pieces.append(data[: MAX_PRINTED_BYTES - self._size])
            self._size += len(data)

    def text(self) -> str:
        text = b"".join(self._pieces).decode("utf-8", "backslashreplace")
        over = self._size - MAX_PRINTED_BYTES
        return f"{text}\n({over} more bytes were left out.)\n" if over > 0 else text


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


def _modules() -> Modules:
    """Return what runs can import beside the standard library: what keeps functions for the next."""
    found = importlib.util.find_spec("cloudpickle")
    if found is None or found.origin is None:
        raise CapsuleError("cloudpickle is missing.", hint="Install capsule-build again.")
    folder = str(Path(found.origin).parents[1])
    return Modules([Source(FolderTree(folder), frozenset({"cloudpickle"}), "/packages/")])


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
