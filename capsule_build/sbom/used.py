"""The packages that a task's files come from, found by the files, and what they say of themselves.

A task may import from any folder of packages, so nothing is required of them: a file that no package lists
is one without a package.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from packaging.utils import canonicalize_name

from . import licences
from .npm import author_of
from .packages import Package

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODULES: Final = "node_modules"
_UNKNOWN: Final = "0"
_MAX_METADATA_BYTES: Final = 1 << 20


def used_distributions(folders: Iterable[str], files: Iterable[str]) -> list[Package]:
    """Return the Python distributions that files are of, each with those of the files that are its own.

    Args:
        folders: Folders of installed packages, in the order in which files were looked for in them.
        files: The files, relative to these folders.
    """
    found: list[Package] = []
    left = set(files)
    for folder in folders:
        here = {name for name in left if Path(folder, name).is_file()}
        left -= here
        for distribution in importlib.metadata.distributions(path=[folder]) if here else ():
            owned = sorted(here & {file.as_posix() for file in distribution.files or ()})
            said = distribution.metadata
            name = said["Name"]
            if owned and name:
                here -= set(owned)
                found.append(
                    Package(
                        kind="pypi",
                        name=canonicalize_name(name),
                        version=said["Version"] or _UNKNOWN,
                        licence=licences.of_distribution(said),  # type: ignore[arg-type]  # it is a Message
                        author=said["Author"] or "",
                        place=folder,
                        owns=tuple(owned),
                        texts=(),
                        needs=(),
                    )
                )
    return sorted(found, key=_order)


def used_npm_packages(folder: str, files: Iterable[str]) -> list[Package]:
    """Return the npm packages that files are of, each with those of the files that are its own.

    Args:
        folder: What the files' names are relative to.
        files: The files.
    """
    owned: dict[str, list[str]] = {}
    for name in files:
        place = _package_of(name)
        if place is not None:
            owned.setdefault(place, []).append(name)
    return sorted((_npm(folder, place, names) for place, names in owned.items()), key=_order)


def _package_of(name: str) -> str | None:
    parts = PurePosixPath(name).parts
    if _MODULES not in parts:
        return None
    after = len(parts) - parts[::-1].index(_MODULES)
    end = after + (2 if parts[after].startswith("@") else 1)
    return "/".join(parts[:end]) if end < len(parts) else None


def _npm(folder: str, place: str, names: list[str]) -> Package:
    said = _description(Path(folder, place, "package.json"))
    name = place.rpartition(f"{_MODULES}/")[2]
    return Package(
        kind="npm",
        name=_text(said, "name") or name,
        version=_text(said, "version") or _UNKNOWN,
        licence=licences.of_npm(said),
        author=author_of(said.get("author")),
        place=place,
        owns=tuple(sorted(names)),
        texts=(),
        needs=(),
    )


def _description(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            said = json.loads(stream.read(_MAX_METADATA_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _text(said: dict[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""


def _order(package: Package) -> tuple[str, str, str]:
    return package.name, package.version, package.place
