"""Two folders that are made equal: what a run does in one of them counts only if it succeeds.

Only what has changed in either since they were equal is copied. The kernel tells that: what is written gets
a new time of modification. Its clock has steps, though, so whatever was written just now is given a time
that no step of it has.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ...runtime.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_BYTES: Final = 256 << 20
"""Of all files of a folder together."""

MAX_ENTRIES: Final = 10_000
"""Files, folders and links of a folder."""

MAX_DEPTH: Final = 64
"""Of folders in folders."""

_STEP_NS: Final = 100_000_000
"""More than a step of the kernel's clock."""


class TooLargeError(CapsuleError):
    """A folder has more than it may have."""


class Entry(NamedTuple):
    """What is known of a file, a folder or a link. It is another when that has changed.

    Attributes:
        kind: Its type, as `stat` has it.
        size: Of a file, in bytes.
        witness: What the kernel changes with it, or where a link leads to.
    """

    kind: int
    size: int
    witness: tuple[int | str, ...]


Listing = dict[str, Entry]
"""A folder's entries by their names in it, folders before what they have."""


class TwinFolders:
    """A folder that is kept, and another one for a run.

    Args:
        top: A folder that belongs to them alone.
    """

    def __init__(self, top: Path) -> None:
        self.kept = top / "a"
        self._other = top / "b"
        self._seen: tuple[Listing, Listing] = ({}, {})
        self._given_up = 0
        self.kept.mkdir()
        self._other.mkdir()

    def begin(self) -> Path:
        """Return the other one, made equal to the one that is kept.

        Raises:
            OSError: It can't be: the disk is full.
        """
        kept = listing(self.kept)
        try:
            other = listing(self._other)
        except (OSError, TooLargeError):
            # A run that failed has left what can't be listed.
            remove_tree(self._other)
            self._other.mkdir()
            other = {}
        seen = self._seen
        changed = {
            name
            for name in {*kept, *other}
            if kept.get(name) != seen[0].get(name) or other.get(name) != seen[1].get(name)
        }
        # A copy that fails in between leaves nothing that would be taken for equal.
        self._seen = ({}, {})
        for name in sorted(changed, reverse=True):
            if name in other and (name not in kept or not _both_folders(kept[name], other[name])):
                _remove(self._other / name)
        for name in sorted(changed):
            if name in kept and not (name in other and _both_folders(kept[name], other[name])):
                _copy(self.kept / name, self._other / name, kept[name])
        if changed:
            self._seen = (_settled(self.kept, kept), _settled(self._other, listing(self._other)))
        else:
            self._seen = seen
        return self._other

    def keep(self) -> None:
        """Keep the other one, with what a run has made of it.

        Raises:
            TooLargeError: It has more than it may have.
        """
        listing(self._other)
        self.kept, self._other = self._other, self.kept
        self._seen = self._seen[::-1]

    def give_up(self) -> None:
        """Take a new one for the next run: what has run in this one may still be writing into it."""
        self._given_up += 1
        gone = self._other.rename(self._other.with_name(f"gone-{self._given_up}"))
        self._other.mkdir()
        self._seen = ({}, {})
        # A file that is made in it just now stays until the session ends.
        with contextlib.suppress(OSError):
            remove_tree(gone)

    def clear(self) -> None:
        """Remove all that both have."""
        self.remove()
        for folder in (self.kept, self._other):
            folder.mkdir()
        self._seen = ({}, {})

    def remove(self) -> None:
        """Remove both. They can't be used any more."""
        for folder in (self.kept, self._other):
            remove_tree(folder)


def listing(folder: Path) -> Listing:
    """Return what a folder has.

    Raises:
        TooLargeError: That is more than it may have.
    """
    found: Listing = {}
    total = 0
    for name, entry in _entries(str(folder), "", 0):
        found[name] = entry
        total += entry.size
        if len(found) > MAX_ENTRIES:
            raise TooLargeError(f"The session's folder would have more than {MAX_ENTRIES} files.")
        if total > MAX_BYTES:
            raise TooLargeError(f"The session's files would have more than {MAX_BYTES >> 20} MB.")
    return found


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that it has, however deep that is."""
    folder.mkdir(exist_ok=True)
    number = 0
    waiting = [folder.rename(folder.with_name(f"{folder.name}.0"))]
    while waiting:
        place = waiting.pop()
        with os.scandir(place) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    # A name may be too long to be said in one; up here none is.
                    number += 1
                    waiting.append(folder.with_name(f"{folder.name}.{number}"))
                    os.rename(entry.path, waiting[-1])
                else:
                    os.unlink(entry.path)
        place.rmdir()


def _entries(path: str, before: str, depth: int) -> Iterator[tuple[str, Entry]]:
    if depth > MAX_DEPTH:
        raise TooLargeError(f"The session's folder would have folders more than {MAX_DEPTH} deep in it.")
    with os.scandir(path) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            kind = stat.S_IFMT(status.st_mode)
            name = f"{before}{entry.name}"
            if kind == stat.S_IFDIR:
                yield name, Entry(kind, 0, ())
                yield from _entries(entry.path, f"{name}/", depth + 1)
            elif kind == stat.S_IFLNK:
                yield name, Entry(kind, 0, (os.readlink(entry.path),))
            else:
                witness = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
                yield name, Entry(kind, status.st_size, witness)


def _both_folders(one: Entry, other: Entry) -> bool:
    return one.kind == other.kind == stat.S_IFDIR


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def _copy(source: Path, target: Path, entry: Entry) -> None:
    if entry.kind == stat.S_IFDIR:
        target.mkdir()
    elif entry.kind == stat.S_IFLNK:
        target.symlink_to(os.readlink(source))
    else:
        shutil.copyfile(source, target, follow_symlinks=False)
        status = source.lstat()
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


def _settled(folder: Path, found: Listing) -> Listing:
    """Return a folder's listing, with other times for what was written just now."""
    since = time.time_ns() - _STEP_NS
    settled = dict(found)
    for name, entry in found.items():
        if entry.kind == stat.S_IFREG and int(entry.witness[1]) >= since:
            path = folder / name
            status = path.lstat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 1))
            status = path.lstat()
            settled[name] = entry._replace(witness=(status.st_ino, status.st_mtime_ns, status.st_ctime_ns))
    return settled
