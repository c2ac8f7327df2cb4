"""Opens files that somebody names: at once, and nothing that isn't one.

A FIFO would wait for somebody who writes, a device may have no end, and opening one can do something to it.
"""

from __future__ import annotations

import os
import stat

# As `typing` has it, which a task has no time to import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import IO

    from .errors import CapsuleError


class UnfitFileError(OSError):
    """What is there isn't a file to be read. `strerror` says why, as that of other errors does."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.strerror = why


def open_at_once(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open for reading whatever has a name, without waiting for it.

    Raises:
        OSError: It isn't there, can't be read, or is a folder.
        ValueError: No file can have this name.
    """
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a regular file for reading, by its name or by a symlink to it.

    Raises:
        UnfitFileError: It is no regular file.
        OSError: It isn't there, or can't be read.
        ValueError: No file can have this name.
    """
    _require_regular(os.stat(path))  # noqa: PTH116 (a task has no time to import pathlib)
    stream = open_at_once(path)
    try:
        # Something else may have taken its name meanwhile.
        _require_regular(os.fstat(stream.fileno()))
    except OSError:
        stream.close()
        raise
    return stream


def read_regular(path: str | os.PathLike[str], *, limit: int) -> bytes:
    """Return all bytes of a regular file.

    Args:
        path: The file, or a symlink to it.
        limit: How many bytes it may have.

    Raises:
        UnfitFileError: It is no regular file, or has more bytes.
        OSError: It isn't there, or can't be read.
        ValueError: No file can have this name.
    """
    with open_regular(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnfitFileError(f"it has more than {limit} bytes")
    return data


def read_named(path: str, *, limit: int, error: type[CapsuleError]) -> bytes:
    """Return all bytes of a regular file that a user named.

    Args:
        path: The file, or a symlink to it.
        limit: How many bytes it may have.
        error: What is raised where that can't be, with a sentence that says why.
    """
    try:
        return read_regular(path, limit=limit)
    except OSError as reason:
        raise error(f"{path} can't be read: {reason.strerror}.") from None
    except ValueError:
        raise error(f"{path!a} can't be the name of a file.") from None


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnfitFileError("it is not a file")
