"""The one tree of errors. Everything that the project raises on purpose derives from `CapsuleError`.

An error is written for the person who meets it: what was wrong, where, and what to do next. The command
line prints exactly that and exits with the class's code; a traceback never reaches a user.
"""

from __future__ import annotations

# As `typing` has it, which a task has no time to import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import ClassVar

EXIT_INTERRUPTED = 130
"""Exit code of a run that the user ended (128 + SIGINT)."""


class CapsuleError(Exception):
    """What was asked for failed.

    Args:
        message: What was wrong, and where: one sentence, or a few.
        hint: What to do next, where there is something to do.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class UsageError(CapsuleError):
    """An option, a name, a version or a file that was given is wrong."""

    exit_code = 2


class InputError(CapsuleError):
    """An input of a build can't be had, or isn't what its digest says."""

    exit_code = 3


class DigestError(InputError):
    """A bundle isn't the one that is named. The message gives both digests."""


class EngineError(CapsuleError):
    """There is no container engine that can be used."""

    exit_code = 4


class ContractError(CapsuleError):
    """A bundle, or another file with a defined format, breaks its contract."""

    exit_code = 5


class SignatureError(CapsuleError):
    """A signature, an identity or a provenance doesn't hold."""

    exit_code = 6


class TargetError(CapsuleError):
    """The environment that should take the capsule can't."""

    exit_code = 7
