"""What lies where in an environment, and how a finished install is told from anything else.

In `CAPSULES` there are

    <name>/                                  an install root: complete, without write bits
    .<name>.sha256-<digest>.<token>          a mark: a hard link to the install root's manifest
    .staging-<token>/                        a bundle on its way
    .trash-<token>/                          what is being removed

A capsule is installed exactly if a mark for its digest is the same file as the manifest in its root. The
mark is made first, while the tree is still in its staging folder; renaming the tree to its name then makes
root and mark a pair in one step, and renaming it away ends that in one step. No moment between looks
installed. Since the pair is told by the file's identity, two that install different digests at once can't
swap their marks.

A token names the process that made an entry, so that another one can tell whether it is still alive.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .manifest import FILE_NAME, INSTALL_PARENT

CAPSULES: Final = INSTALL_PARENT
"""The folder of install roots."""

SETUPS: Final = "/tmp/agentcompass-capsule-setups"  # noqa: S108 (fixed by the contract, as install roots are)
"""The folder of setup roots, each named by the digest of the capsule that it belongs to."""

MANIFEST: Final = FILE_NAME

STALE_SECONDS: Final = 24 * 3600
"""Age after which another machine's unfinished entries count as left behind."""

_MARK = re.compile(
    r"\.(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\.sha256-(?P<digest>[0-9a-f]{64})\.(?P<token>[0-9a-f-]+)"
)
_WORK = re.compile(r"\.(?:staging|trash)-(?P<token>[0-9a-f-]+)")
_TOKEN = re.compile(
    r"(?P<machine>[0-9a-f]{8}-[0-9a-f]+)-(?P<pid>[0-9a-f]+)-(?P<start>[0-9a-f]+)-(?P<time>[0-9a-f]+)-[0-9a-f]{8}"
)


@dataclass(frozen=True)
class Mark:
    """A mark's name, taken apart."""

    name: str
    digest: str
    token: str

    def __str__(self) -> str:
        return f".{self.name}.sha256-{self.digest}.{self.token}"

    @classmethod
    def parse(cls, entry: str) -> Mark | None:
        """Return the mark that a file name is; `None` for any other name."""
        found = _MARK.fullmatch(entry)
        return None if found is None else cls(found["name"], found["digest"], found["token"])


def staging(token: str) -> str:
    """Return the path of a token's staging folder."""
    return f"{CAPSULES}/.staging-{token}"


def trash(token: str) -> str:
    """Return the path of a token's trash folder."""
    return f"{CAPSULES}/.trash-{token}"


def new_token() -> str:
    """Return a token of this process: machine, process, start, time and chance."""
    return "-".join(
        (
            _machine(),
            f"{os.getpid():x}",
            f"{_start(os.getpid()) or 0:x}",
            f"{int(time.time()):x}",
            secrets.token_hex(4),
        )
    )


def is_left_behind(entry: str) -> bool:
    """Return whether an entry of `CAPSULES` is unfinished work, or a mark, of a process that is dead."""
    mark = Mark.parse(entry)
    work = _WORK.fullmatch(entry)
    token = mark.token if mark else work["token"] if work else None
    if token is None:
        return False
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return True
    if parts["machine"] == _machine():
        return _start(int(parts["pid"], 16)) != int(parts["start"], 16)
    return abs(time.time() - int(parts["time"], 16)) > STALE_SECONDS


def _machine() -> str:
    """Return this boot of this machine, and the PID namespace: where a process id means something."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return "00000000-0"
    return f"{boot}-{space:x}"


def _start(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; `None` if there is none (proc(5), field 22)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    # A zombie only waits for its parent to look.
    return None if fields[0] in "ZX" else int(fields[19])
