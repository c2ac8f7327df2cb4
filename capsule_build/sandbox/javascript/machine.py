"""The machine that JavaScript's tasks run in: that of Python's, with another guest."""

from __future__ import annotations

from ..machine import Kind, Machine
from .guest import guest_key

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

STACK_BYTES: Final = 3 << 20
"""Of native stack: some 3000 calls deep. With more, the stack in the guest's memory would end first."""

START_BYTES: Final = 96 << 16
"""Of memory, that the guest begins with: a task can't have less."""


def _ready_guest(say: Callable[[str], None]) -> bytes:
    # Not needed to run a task.
    from .making import ready_guest

    return ready_guest(say)


JAVASCRIPT: Final = Kind(guest_key, _ready_guest, "JavaScript", START_BYTES, STACK_BYTES, waits=True)


def make_machine(answer: Callable[[int, bytes], bytes], say: Callable[[str], None]) -> Machine:
    """Return a machine for JavaScript (see `Machine`)."""
    return Machine(answer, say=say, kind=JAVASCRIPT)
