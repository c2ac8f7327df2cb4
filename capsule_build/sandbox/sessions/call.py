"""One call of `run`: what it prints, what ends it early, and how it fails."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...runtime.errors import CapsuleError
from ..grants import Mount
from ..running import Context, machine, run_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..instance import Instance
    from ..javascript.image import MemoryCarrier
    from ..machine import Machine
    from ..source import TaskFile

FOLDER: Final = "/workspace"
"""Where a run finds the session's folder."""

MAX_PRINTED_BYTES: Final = 16 << 20
"""Of what a run prints, and of how its value is shown. What is beyond is left out, which is said."""

CANCELLED: Final = "The run was cancelled."


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


class Call:
    """A run that may be cancelled, at any time, and what it prints on standard output.

    Args:
        last: Whether no other follows upon it.
    """

    def __init__(self, *, last: bool = False) -> None:
        self.last = last
        self.cancelled = False
        self._instance: Instance | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    def begin(self, instance: Instance) -> None:
        """Hear of an instance before it runs."""
        self._instance = instance
        if self.cancelled:
            instance.cancel("cancelled")

    def cancel(self) -> None:
        """End it."""
        self.cancelled = True
        if self._instance is not None:
            self._instance.cancel("cancelled")

    def hear(self, number: int, data: bytes) -> None:
        """Hear what is printed: 1 or 2, and bytes."""
        if number == 1:
            if self._size < MAX_PRINTED_BYTES:
                self._pieces.append(data[: MAX_PRINTED_BYTES - self._size])
            self._size += len(data)

    def printed(self) -> str:
        """Return what was printed until now."""
        text = b"".join(self._pieces).decode("utf-8", "backslashreplace")
        over = self._size - MAX_PRINTED_BYTES
        return f"{text}\n({over} more bytes were left out.)\n" if over > 0 else text

    def said(self, value: str | None, lost: Sequence[str]) -> str:
        """Return what it gives: what was printed, its value, and what can't be kept."""
        printed = self.printed()
        parts = [printed.removesuffix("\n")] if printed else []
        if value is not None:
            over = len(value) - MAX_PRINTED_BYTES
            parts.append(f"{value[:-over]}\n({over} more characters were left out.)" if over > 0 else value)
        if lost:
            parts.append(f"(These can't be kept for the next run: {', '.join(lost)}.)")
        return _unicode("\n".join(parts))

    def answer(
        self,
        file: TaskFile,
        args: Sequence[Any],
        folder: Path,
        language: str,
        carrier: MemoryCarrier | None = None,
    ) -> Any:
        """Run a file's entry point and return its result.

        Args:
            file: What runs.
            args: Its arguments.
            folder: The working folder.
            language: The guest that runs it.
            carrier: See `Context`.

        Raises:
            SessionError: It failed.
        """
        context = Context(
            file,
            engine(language),
            str(Path.cwd()),
            self.hear,
            lambda _task, _state: None,
            begun=self.begin,
            carrier=carrier,
        )
        if self.cancelled:
            raise self.failure("timeout", CANCELLED)
        envelope = run_entry(context, args, mounts=[Mount(str(folder), FOLDER, writable=True)])
        if envelope["error"] is not None:
            raise self.failure(envelope["error"]["error_type"], envelope["error"]["message"])
        return envelope["result"]

    def failure(self, error_type: str, message: str) -> SessionError:
        """Return the error that ends it, with what it has printed."""
        return SessionError(_unicode(message), error_type=error_type, printed=self.printed())


def _unicode(text: str) -> str:
    """Return a text of a guest's as one that can be written: halves of characters alone can't be."""
    return text.encode("utf-8", "backslashreplace").decode()


def engine(language: str) -> Machine:
    """Return this process's machine for a language."""
    return machine(_say, language)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
