"""Reads files that somebody names: whole, within a bound, and without waiting for what isn't a file."""

from __future__ import annotations

import os

from ..runtime.regular import read_regular
from .options import ConfigError


def read_file(path: str, *, limit: int) -> bytes:
    """Return the bytes of a file that must be there.

    Raises:
        ConfigError: It isn't there, can't be read, is no file, or is too large.
    """
    try:
        return read_regular(path, limit=limit)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}.") from None
    except ValueError:
        raise ConfigError(f"{path!a} can't be the name of a file.") from None


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
