"""One transfer: where its bytes go, who is told, and how it is called off."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from ..runtime.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BLOCK_BYTES: Final = 1 << 18
"""How much is read at a time; also how often a transfer looks whether it was called off."""

MAX_FILE_BYTES: Final = 2 << 30
"""The most that is taken of a file whose size isn't known beforehand."""


class CancelledError(Exception):
    """The transfer was called off, since another one failed or the user ended the run. Never shown."""


class NotThereError(InputError):
    """The place answers, and doesn't have the file."""


class UnreachableError(InputError):
    """The place can't be reached, or doesn't answer as it should."""


class WrongFileError(InputError):
    """What came isn't the file that was asked for: its size or its digest is another."""


class NoVersionError(UsageError):
    """The origin answers, and has the package but no such version.

    Attributes:
        nearest: The nearest versions that it has.
    """

    def __init__(self, what: str, nearest: list[str]) -> None:
        hint = f"The nearest versions that exist: {', '.join(nearest)}." if nearest else None
        super().__init__(f"There is no {what}.", hint=hint)
        self.nearest = nearest


class StorageError(InputError):
    """The file can't be written: no space, no permission."""


def _ignore(_: int) -> None:
    return


@dataclass(frozen=True)
class Transfer:
    """What a fetcher needs to know beside the pin.

    Attributes:
        folder: An empty folder of this transfer alone, on the cache's file system.
        advanced: Told how many bytes are here.
        cancelled: Set when the transfer is called off.
    """

    folder: Path
    advanced: Callable[[int], None] = _ignore
    cancelled: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise `CancelledError` if the transfer was called off."""
        if self.cancelled.is_set():
            raise CancelledError

    def wait(self, seconds: float) -> None:
        """Wait, and raise `CancelledError` as soon as the transfer is called off."""
        if self.cancelled.wait(seconds):
            raise CancelledError


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the error for a file of the cache that can't be written."""
    return StorageError(
        f"{path} can't be written: {error.strerror or error}.",
        hint="Make room ('capsule-build cache prune' drops what no pin names), or name another folder with "
        "CAPSULE_CACHE_DIR.",
    )


class Sink:
    """The file that a transfer fills. Errors in writing it are told from errors in reading its source."""

    def __init__(self, path: Path, transfer: Transfer, *, limit: int, source: str) -> None:
        self._path, self._transfer, self._limit, self._source = path, transfer, limit, source
        self.done = 0

    def __enter__(self) -> Self:
        try:
            # Unbuffered, so that a full disk is met in `write`.
            self._stream = self._path.open("wb", buffering=0)
        except OSError as error:
            raise storage_error(self._path, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, block: bytes) -> None:
        """Take the next bytes.

        Raises:
            WrongFileError: They are more than the limit.
            StorageError: They can't be written.
            CancelledError: The transfer was called off.
        """
        self._transfer.check()
        self.done += len(block)
        if self.done > self._limit:
            raise WrongFileError(f"{self._source} has more than {self._limit} bytes.")
        view = memoryview(block)
        try:
            while view:
                view = view[self._stream.write(view) :]
        except OSError as error:
            raise storage_error(self._path, error) from error
        self._transfer.advanced(self.done)
