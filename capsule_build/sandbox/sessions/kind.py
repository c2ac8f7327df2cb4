"""What a language of sessions has to be able to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from .call import Call


class Left(NamedTuple):
    """What a run left.

    Attributes:
        state: For the next one; nobody but its language looks into it.
        value: Of its last expression, as text; `None`: there is none.
        lost: Names of what can't be kept.
    """

    state: Any
    value: str | None
    lost: tuple[str, ...]


class Kind(Protocol):
    """Runs the code of one language, with the limits and grants of one session."""

    def run(self, code: str, state: Any, number: int, folder: Path, call: Call) -> Left:
        """Run a piece of code.

        Args:
            code: Its text.
            state: What the last run left; `None`: it is the first.
            number: Which run it is, for messages.
            folder: The working folder.
            call: Hears what it prints, and may end it.

        Raises:
            SessionError: It failed.
        """
        ...
