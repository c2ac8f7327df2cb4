"""One call of `run`: what it prints, what ends it early, and how it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...runtime.errors import CapsuleError

if TYPE_CHECKING:
    from ..instance import Instance

MAX_PRINTED_BYTES: Final = 16 << 20
"""Of what a run prints. What is beyond is left out, which is said."""


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
    """A run that may be cancelled, at any time, and what it prints on standard output."""

    def __init__(self) -> None:
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

    def failure(self, error_type: str, message: str) -> SessionError:
        """Return the error that ends it, with what it has printed."""
        return SessionError(message, error_type=error_type, printed=self.printed())
