"""Reads files that somebody names: whole, within a bound, and without waiting for what isn't a file."""

from __future__ import annotations

import os
import stat

from .options import ConfigError


def read_file(path: str, *, limit: int) -> bytes:
    """Return the bytes of a file that must be there.

    Raises:
        ConfigError: It isn't there, can't be read, is no file, or is too large.
    """
    try:
        # A FIFO would wait for somebody who writes, and a device may have no end.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigError(f"{path!a} can't be the name of a file.") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConfigError(f"{path} can't be read: it is not a file.")
    try:
        with open(handle, "rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from None
    if len(data) > limit:
        raise ConfigError(f"{path} has more than {limit} bytes.")
    return data


def read_if_there(path: str, *, limit: int) -> bytes | None:
    """Return a file's bytes; `None`: nothing has that name. A symlink to nothing is there, and can't be read.

    Raises:
        ConfigError: As for `read_file`.
    """
    return read_file(path, limit=limit) if _is_there(path) else None


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        # Reading it says why.
        pass
    return True
