"""The packages that a task's files come from, found by the files, and what they say of themselves.

A task may import from any folder of packages, so nothing is required of them: a file that no package lists
is one without a package.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from packaging.utils import canonicalize_name

from . import licences
from .npm import author_of
from .packages import Package

if TYPE_CHECKING:
    from collections.abc import Iterable

_MODULES: Final = "node_modules"
_NPM_NAME: Final = re.compile(r"(@[a-z0-9._~-]+/)?[a-z0-9._~-]+", re.IGNORECASE)
_PYPI_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
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
            name = canonicalize_name(_text(said, "Name"))
            if owned and _PYPI_NAME.fullmatch(name):
                here -= set(owned)
                found.append(
                    Package(
                        kind="pypi",
                        name=name,
                        version=_text(said, "Version") or _UNKNOWN,
                        licence=licences.of_distribution(said),  # type: ignore[arg-type]  # it is a Message
                        author=_text(said, "Author"),
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
    name = _text(said, "name")
    return Package(
        kind="npm",
        # Where it says none that can be one, it is known by its folder's.
        name=name if _NPM_NAME.fullmatch(name) else place.rpartition(f"{_MODULES}/")[2],
        version=_text(said, "version") or _UNKNOWN,
        licence=licences.of_npm(said),
        author=_line(author_of(said.get("author"))),
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


def _text(said: Any, key: str) -> str:
    return _line(said.get(key))


def _line(value: object) -> str:
    """Return what is one line of text; nothing else is worth being repeated."""
    return value.strip() if isinstance(value, str) and value.isprintable() else ""


def _order(package: Package) -> tuple[str, str, str]:
    return package.name, package.version, package.place
