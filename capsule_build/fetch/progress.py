"""What a fetch tells its user, whoever shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..pins import Pin


class Progress(Protocol):
    """Is told how downloads go. Its methods are called from several threads."""

    def started(self, pin: Pin) -> None:
        """A download begins; an input that is in the cache has none."""

    def advanced(self, pin: Pin, bytes_done: int) -> None:
        """So many bytes of it are here; after a retry the count starts again."""

    def finished(self, pin: Pin) -> None:
        """It is here, checked and in the cache."""

    def note(self, text: str) -> None:
        """Something that the user should know, though the fetch goes on."""


class Silence:
    """A `Progress` that shows nothing."""

    def started(self, pin: Pin) -> None:
        """Show nothing."""

    def advanced(self, pin: Pin, bytes_done: int) -> None:
        """Show nothing."""

    def finished(self, pin: Pin) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""
