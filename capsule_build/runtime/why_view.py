"""What `why` looks at and what it finds: an environment's files behind their symlinks, and problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .elf import Elf, ElfError, read_elf
from .errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .why_files import Entry, Files, Surroundings

_MAX_LINKS: Final = 40
"""Symlinks that the kernel follows in one path."""


@dataclass(frozen=True)
class Problem:
    """Something that keeps a program from starting.

    Attributes:
        kind: What it is, for machines; `docs/capsule-command.md` lists them.
        path: The file at fault.
        message: What is wrong, for people.
        hint: What to do next, where that is known here.
    """

    kind: str
    path: str
    message: str
    hint: str | None = None


@dataclass(frozen=True)
class Trail:
    """Where a path leads: every path on the way, and what is at its end; `None`: nothing is."""

    steps: tuple[str, ...]
    entry: Entry | None

    @property
    def is_link(self) -> bool:
        """Whether the path is a symlink."""
        return len(self.steps) > 1

    @property
    def is_loop(self) -> bool:
        """Whether it comes by a path again, and so leads nowhere."""
        return len(set(self.steps)) < len(self.steps)

    @property
    def shown(self) -> str:
        """The way, for people: of a loop, one round."""
        again = next((i for i, step in enumerate(self.steps) if step in self.steps[:i]), len(self.steps))
        return " -> ".join(self.steps[: again + 1])


class View:
    """An environment, looked at for one explanation.

    Args:
        files: Its files.
        surroundings: What its programs are given.
    """

    def __init__(self, files: Files, surroundings: Surroundings) -> None:
        self.files = files
        self.surroundings = surroundings
        self._elves: dict[str, Elf | ElfError] = {}

    def follow(self, paths: Iterable[str]) -> dict[str, Trail]:
        """Return where paths lead, all in as many looks as the longest chain of symlinks needs."""
        steps = {path: [path] for path in paths}
        found: dict[str, Trail] = {}
        for _ in range(_MAX_LINKS + 1):
            open_ends = {path: way[-1] for path, way in steps.items() if path not in found}
            if not open_ends:
                break
            entries = self.files.entries(list(dict.fromkeys(open_ends.values())))
            for path, end in open_ends.items():
                entry = entries.get(end)
                if entry is not None and entry.following is not None:
                    steps[path].append(entry.following)
                else:
                    found[path] = Trail(tuple(steps[path]), entry)
        # A loop leads nowhere.
        return {path: found.get(path, Trail(tuple(way), None)) for path, way in steps.items()}

    def at(self, path: str) -> Trail:
        """Return where one path leads."""
        return self.follow([path])[path]

    def elf(self, entry: Entry) -> Elf:
        """Return the head of an ELF file.

        Raises:
            ElfError: It isn't one, or is broken.
            TargetError: It can't be read.
        """
        if entry.real_path not in self._elves:
            try:
                with self.files.open(entry) as stream:
                    self._elves[entry.real_path] = read_elf(stream)
            except ElfError as error:
                self._elves[entry.real_path] = error
        found = self._elves[entry.real_path]
        if isinstance(found, ElfError):
            raise found
        return found

    def elf_or_none(self, entry: Entry) -> Elf | None:
        """Return the head of a file; `None`: it isn't ELF, or can't be read."""
        try:
            return self.elf(entry)
        except (ElfError, TargetError):
            return None
