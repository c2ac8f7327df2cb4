"""The packages in a node_modules folder, and in those of its packages.

Which package a `require` finds: https://nodejs.org/api/modules.html#loading-from-node_modules-folders.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from ..runtime.errors import ContractError
from . import licences
from .packages import Package, files_of, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MODULES: Final = "node_modules"
_TEXT: Final = re.compile(r"(?:licen[cs]e|copying|notice|unlicense)(?:[-._ ].*)?", re.IGNORECASE)
_NEEDS: Final = ("dependencies", "optionalDependencies", "peerDependencies")
_REFERS: Final = re.compile(r"see licen[cs]e in (?P<file>[^/\\]+)", re.IGNORECASE)


def read_node_modules(tree: Path, folder: str) -> list[Package]:
    """Return all packages below a node_modules folder, those in other packages too, sorted by their places.

    Args:
        tree: The finished tree.
        folder: The folder, in the tree.

    Raises:
        ContractError: A package doesn't say its name and version.
    """
    found = {place: _description(tree, place) for place in _places(tree, folder)}
    return [_package(tree, place, found) for place in sorted(found)]


def _places(tree: Path, folder: str) -> Iterator[str]:
    for entry in sorted((tree / folder).iterdir()):
        if entry.name.startswith(".") or not entry.is_dir() or entry.is_symlink():
            continue
        place = f"{folder}/{entry.name}"
        if entry.name.startswith("@"):
            yield from _places(tree, place)
            continue
        yield place
        if (entry / _MODULES).is_dir():
            yield from _places(tree, f"{place}/{_MODULES}")


def _description(tree: Path, place: str) -> dict[str, Any]:
    name = f"{place}/package.json"
    try:
        description = json.loads(read_text(tree, name))
    except (ValueError, RecursionError) as error:
        raise ContractError(f"The finished tree's {name} is not JSON.") from error
    if not isinstance(description, dict) or not all(
        isinstance(description.get(key), str) and description[key] for key in ("name", "version")
    ):
        raise ContractError(f"The finished tree's {name} says no name and version: is the source complete?")
    return description


def _package(tree: Path, place: str, found: dict[str, dict[str, Any]]) -> Package:
    description = found[place]
    licence = licences.of_npm(description)
    texts = [name for name in files_of(tree / place) if _TEXT.fullmatch(name)]
    named = _REFERS.fullmatch(licence.name)
    if named and named["file"] not in texts and (tree / place / named["file"]).is_file():
        texts.append(named["file"])
    return Package(
        kind="npm",
        name=description["name"],
        version=description["version"],
        licence=licence,
        author=author_of(description.get("author")),
        place=place,
        owns=(place,),
        texts=tuple((name, f"{place}/{name}") for name in sorted(texts)),
        needs=tuple(_needs(description, place, found)),
    )


def _needs(description: dict[str, Any], place: str, found: dict[str, dict[str, Any]]) -> Iterator[str]:
    wanted: dict[str, None] = {}
    for key in _NEEDS:
        named = description.get(key)
        if isinstance(named, dict):
            wanted.update(dict.fromkeys(named))
    for name in sorted(wanted):
        for parent in (PurePosixPath(place), *PurePosixPath(place).parents):
            there = (parent if parent.name == _MODULES else parent / _MODULES) / name
            if str(there) in found:
                yield str(there)
                break


def author_of(value: object) -> str:
    """Return the name of an `author`: of `Ann <ann@example.test> (https://example.test)`, or an object."""
    text = value.get("name") if isinstance(value, dict) else value
    return re.split(r"[<(]", text)[0].strip() if isinstance(text, str) else ""
