"""The Python distributions in a site-packages folder.

Format: https://packaging.python.org/en/latest/specifications/recording-installed-packages/.
"""

from __future__ import annotations

import csv
import email.parser
import posixpath
from typing import TYPE_CHECKING, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..runtime.errors import ContractError
from . import licences
from .packages import Package, files_of, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

_INFO: Final = ".dist-info"


def read_site_packages(tree: Path, folder: str) -> list[Package]:
    """Return all distributions of a site-packages folder, sorted by their places.

    Args:
        tree: The finished tree.
        folder: The folder, in the tree.

    Raises:
        ContractError: A distribution doesn't say its name and version.
    """
    places = sorted(path.name for path in (tree / folder).iterdir() if path.name.endswith(_INFO))
    found: dict[str, tuple[str, Message]] = {}
    for name in places:
        place = f"{folder}/{name}"
        metadata = email.parser.Parser().parsestr(read_text(tree, f"{place}/METADATA"), headersonly=True)
        if not metadata.get("Name") or not metadata.get("Version"):
            raise ContractError(f"The finished tree's {place}/METADATA says no name and version.")
        found[canonicalize_name(str(metadata["Name"]))] = (place, metadata)
    return [
        Package(
            kind="pypi",
            name=name,
            version=str(metadata["Version"]),
            licence=licences.of_distribution(metadata),
            author=str(metadata.get("Author", "")),
            place=place,
            owns=_owned(tree, folder, place),
            texts=_texts(tree, place, metadata),
            needs=tuple(found[other][0] for other in _needs(metadata) if other in found),
        )
        for name, (place, metadata) in sorted(found.items())
    ]


def _owned(tree: Path, folder: str, place: str) -> tuple[str, ...]:
    """Return what a distribution's RECORD lists, by its tops below the folder: bytecode comes along."""
    owned = {place}
    for row in csv.reader(read_text(tree, f"{place}/RECORD").splitlines()):
        name = posixpath.normpath(row[0]) if row else ".."
        if not name.startswith(("..", "/")):
            owned.add(f"{folder}/{name.partition('/')[0]}")
    return tuple(sorted(owned))


def _texts(tree: Path, place: str, metadata: Message) -> tuple[tuple[str, str], ...]:
    """Return the texts that the metadata names, below `licenses` since its version 2.4, and LICENSE files."""
    named = [str(name) for name in metadata.get_all("License-File", [])]
    named = [name for name in named if not name.startswith("/") and ".." not in name.split("/")]
    called = [name for name in files_of(tree / place) if name.upper().startswith(("LICENSE", "LICENCE"))]
    found = {name: f"{place}/{name}" for name in (*called, *named)}
    found |= {
        name: f"{place}/licenses/{name}" for name in named if (tree / place / "licenses" / name).is_file()
    }
    return tuple(sorted((name, path) for name, path in found.items() if (tree / path).is_file()))


def _needs(metadata: Message) -> Iterator[str]:
    for line in metadata.get_all("Requires-Dist", []):
        try:
            requirement = Requirement(str(line))
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)
