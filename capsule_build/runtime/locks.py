"""One installer an environment at a time, as far as this user's processes on this machine go.

The lock saves work and lets an installer clean up at once; that nothing wrong is ever installed does not rest
on it (see `layout`). The kernel takes it from a process that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER: Final = "/tmp/agentcompass-capsule-locks-{uid}"  # noqa: S108 (checked below)
_POLL_SECONDS: Final = 0.02


@contextlib.contextmanager
def lock(identity: str, *, timeout: float = 900.0) -> Iterator[None]:
    """Hold the lock of an environment.

    Args:
        identity: The environment's identity.
        timeout: Seconds to wait for it.

    Raises:
        TargetError: Another process doesn't let go of it, or the folder of locks isn't this user's own.
    """
    path = _folder() / hashlib.sha256(identity.encode()).hexdigest()[:32]
    deadline = time.monotonic() + timeout
    handle = _locked(path)
    while handle is None:
        if time.monotonic() > deadline:
            raise TargetError(
                f"{identity}: another process has been installing here for more than {timeout:g} s.",
                hint=f"It holds '{path}'; end it if it hangs.",
            )
        time.sleep(_POLL_SECONDS)
        handle = _locked(path)
    try:
        yield
    finally:
        # Whoever waits for this file sees that it lost its name, and takes a new one.
        path.unlink(missing_ok=True)
        os.close(handle)


def _locked(path: Path) -> int | None:
    """Return a descriptor of the file of that name, locked; `None`: somebody else has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(handle).st_ino:
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None


def _folder() -> Path:
    folder = Path(_FOLDER.format(uid=os.geteuid()))
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise TargetError(
            f"The folder of locks '{folder}' is a symlink, another user's, or writable by others.",
            hint="Have it removed.",
        )
    return folder
