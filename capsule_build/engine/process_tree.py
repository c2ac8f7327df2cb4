"""This machine's processes as proc(5) tells of them: who started whom, and whether they stand still."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """One process.

    Attributes:
        state: Its state's letter in proc(5); `T` is stopped, `Z` ended and not yet waited for.
        parent: Its parent's id.
        group: Its process group.
    """

    state: str
    parent: int
    group: int


def processes() -> dict[int, Process]:
    """Return all processes by their ids."""
    found: dict[int, Process] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent, group = _fields(status)[:3]
            found[int(status.parent.name)] = Process(state, int(parent), int(group))
    return found


def descendants(ancestor: int) -> list[int]:
    """Return what a process started, and what that started, and so on; parents come first."""
    known = processes()
    found: list[int] = []
    level = {ancestor}
    while level:
        level = {pid for pid, item in known.items() if item.parent in level}
        found += sorted(level)
    return found


def program(pid: int) -> str:
    """Return the file name that a process was started by; "" where the process has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return words[0].rpartition(b"/")[2].decode("utf-8", "surrogateescape")


def stands_still(pid: int) -> bool:
    """Return whether every thread of a process is stopped or has ended."""
    states = set()
    for status in Path(f"/proc/{pid}/task").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            states.add(_fields(status)[0])
    return states <= {"T", "t", "Z", "X"}


def _fields(status: Path) -> list[str]:
    # The name in parentheses may hold anything; these are the fields behind it.
    return status.read_text(errors="replace").rpartition(")")[2].split()
