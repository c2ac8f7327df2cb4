"""Opens files that somebody names: at once, and nothing that isn't one.

A FIFO would wait for somebody who writes, a device may have no end, and opening one can do something to it.
"""

from __future__ import annotations

import errno
import os
import stat

# As `typing` has it, which a task has no time to import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import IO


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
        OSError: It isn't there, can't be read, or is no regular file. `strerror` says which, in words that
            go behind "... can't be read: ".
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
        OSError: As for `open_regular`; or it has more bytes.
        ValueError: No file can have this name.
    """
    with open_regular(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit} bytes")
    return data


def _require_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a file")
