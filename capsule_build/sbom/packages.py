"""Packages that come inside a component: what npm has in node_modules, what a Python has in site-packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packageurl import PackageURL

from ..runtime.errors import ContractError

if TYPE_CHECKING:
    from pathlib import Path

    from .licences import Licence

_MAX_METADATA_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Package:
    """One installed copy of a package.

    Attributes:
        kind: `npm` or `pypi`.
        name: Its name, with its scope if it has one.
        version: Its version.
        licence: What it declares.
        author: Who made it, as it says; may be empty.
        place: Its folder in the bundle.
        owns: The files and folders in the bundle that are its own.
        texts: Its licence texts: the names that they have among themselves, and their paths in the bundle.
        needs: The places of the packages that it asks for, as its runtime would find them.
    """

    kind: str
    name: str
    version: str
    licence: Licence
    author: str
    place: str
    owns: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]
    needs: tuple[str, ...]

    @property
    def purl(self) -> PackageURL:
        """Its package URL."""
        scope, _, name = self.name.rpartition("/")
        return PackageURL(self.kind, scope or None, name, self.version)


def read_text(tree: Path, name: str) -> str:
    """Return a package's own description of itself.

    Raises:
        ContractError: It isn't there, isn't text, or is too long to be one.
    """
    path = tree / name
    try:
        if path.stat().st_size > _MAX_METADATA_BYTES:
            raise ContractError(f"The finished tree's {name} is too long to be what it should be.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"The finished tree has no readable {name}: is the source complete?") from error


def files_of(folder: Path) -> list[str]:
    """Return the names of a folder's own regular files, sorted."""
    return sorted(path.name for path in folder.iterdir() if path.is_file() and not path.is_symlink())
