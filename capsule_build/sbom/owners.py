"""Which component each file of a bundle belongs to: exactly one, for every regular file."""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..runtime.errors import ContractError
from ..runtime.files import sha256_file
from .own import FILE_NAME, LICENCES, ROOT_FILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from .parts import Part

ROOT: Final = "."
"""The owner of what belongs to the bundle as a whole."""

_GLOB: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class ShippedFile:
    """A regular file of a bundle."""

    name: str
    sha256: str
    owner: str


def shipped_files(tree: Path, parts: Iterable[Part]) -> tuple[ShippedFile, ...]:
    """Return the regular files of a finished tree but its SBOM, sorted by name, with digests and owners.

    Raises:
        ContractError: A file belongs to no component, or to two.
    """
    owners = Owners(parts)
    return tuple(
        ShippedFile(name, sha256_file(tree / name), owners.of(name))
        for name in sorted(_regular_files(tree))
        if name != FILE_NAME
    )


class Owners:
    """Finds the owner of a file: the component whose pattern goes deepest.

    A pattern names a file or a folder with all that is below it; `*` stands for a part of one name. A
    component always owns the folder of its licence texts.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._plain: dict[str, str] = {}
        self._globs: list[tuple[tuple[str, ...], str]] = []
        for part in parts:
            self._claim(f"{LICENCES}/{part.folder}", part.ref)
            for pattern in part.files:
                # A package that came along may be called anything: it names its folder, never a pattern.
                if part.item is not None or not part.places:
                    self._claim_pattern(pattern, part.ref)
                else:
                    self._claim(pattern, part.ref)
        for name in ROOT_FILES:
            self._claim(name, ROOT)

    def of(self, name: str) -> str:
        """Return the ref of a file's owner.

        Raises:
            ContractError: It has none, or two.
        """
        components = tuple(name.split("/"))
        for depth in range(len(components), 0, -1):
            prefix = components[:depth]
            found = {owner for pattern, owner in self._globs if _fits(prefix, pattern)}
            if plain := self._plain.get("/".join(prefix)):
                found.add(plain)
            if len(found) > 1:
                raise ContractError(f"The file {name} belongs to two components: {', '.join(sorted(found))}.")
            if found:
                return found.pop()
        raise ContractError(
            f"The file {name} belongs to no component.",
            hint="Each component says in components.toml which files of a bundle are its own ('files').",
        )

    def _claim_pattern(self, pattern: str, ref: str) -> None:
        if _GLOB.search(pattern):
            self._globs.append((tuple(pattern.split("/")), ref))
        else:
            self._claim(pattern, ref)

    def _claim(self, name: str, ref: str) -> None:
        if self._plain.setdefault(name, ref) != ref:
            raise ContractError(f"Two components, {self._plain[name]} and {ref}, say that {name} is theirs.")


def group_by_owner(files: Iterable[ShippedFile]) -> Mapping[str, list[ShippedFile]]:
    """Return the files of each owner."""
    grouped: dict[str, list[ShippedFile]] = {}
    for file in files:
        grouped.setdefault(file.owner, []).append(file)
    return grouped


def _fits(prefix: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    return len(prefix) == len(pattern) and all(map(fnmatch.fnmatchcase, prefix, pattern))


def _regular_files(tree: Path) -> Iterator[str]:
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 - a Path for each of thousands of files takes longer
            if not os.path.islink(path):  # noqa: PTH114
                yield os.path.relpath(path, tree)
