"""The components of a bundle: what each input, each package in it, and the project's own part is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..plan import Role
from ..runtime.errors import ContractError
from .distributions import read_site_packages
from .licences import Licence, said
from .npm import read_node_modules
from .origins import package_url, source_urls
from .own import LICENCE, NATIVE, NATIVE_FILES, SUPPLIER, native_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from packageurl import PackageURL

    from ..components import Component
    from ..inputs import ReadyInput
    from ..plan import BuildPlan
    from ..recipes import Packages
    from .packages import Package

_IN_BUNDLE: Final = (Role.RUNTIME, Role.SHIPPED, Role.LINKED)
_READERS: Final = {"npm": read_node_modules, "pypi": read_site_packages}


@dataclass(frozen=True)
class Part:
    """One component of a bundle.

    Attributes:
        ref: What the document calls it: its name, or its package URL where it is a package that came along.
        name: Its name.
        version: Its version.
        title: What people call it; may be empty.
        licence: Its licence.
        supplier: Who supplied it.
        author: Who made it, as it says; may be empty.
        purl: Its package URL; `None` for the user's own and for the project's own part.
        files: The files and folders that are its own: patterns, of which the longest that fits decides.
        folder: The folder of its licence texts, below `share/licenses`.
        texts: Licence texts of its own elsewhere in the bundle: names among themselves, and paths.
        sources: Package URLs of its source.
        places: Where its copies lie, for a package that came along.
        needs: The refs of what it asks for, as it says.
        item: The input that it is; `None` for what came inside one.
        role: What it is for; that of the input that it came inside.
    """

    ref: str
    name: str
    version: str
    title: str
    licence: Licence
    supplier: str
    files: tuple[str, ...]
    folder: str
    role: Role
    author: str = ""
    purl: PackageURL | None = None
    texts: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    item: ReadyInput | None = None


def find_parts(
    plan: BuildPlan, inputs: Iterable[ReadyInput], components: Mapping[str, Component], tree: Path
) -> tuple[Part, ...]:
    """Return the components of a finished tree, sorted by their refs.

    Args:
        plan: The plan that it was built by.
        inputs: The inputs that it was made of.
        components: What each component is.
        tree: The tree.

    Raises:
        ContractError: The tree lacks a package that the recipe names, or a package says too little of itself.
        InputError: A Debian package is damaged.
    """
    given = [item for item in inputs if item.planned.role in _IN_BUNDLE]
    parts = {item.planned.name: _from_input(item, components[item.planned.component]) for item in given}
    parts[NATIVE] = Part(
        ref=NATIVE,
        name=NATIVE,
        version=native_version(),
        title="The capsule's own tools",
        licence=Licence(expression=LICENCE),
        supplier=SUPPLIER,
        files=(*NATIVE_FILES, *plan.recipe.written),
        folder=NATIVE,
        role=Role.SHIPPED,
        needs=tuple(sorted(item.planned.name for item in given if item.planned.role is Role.LINKED)),
    )
    for wanted in plan.recipe.packages:
        for part in _from_packages(wanted, tree, parts[wanted.inside]):
            if part.ref in parts:
                raise ContractError(f"The bundle has two components that are called {part.ref!a}.")
            parts[part.ref] = part
    return tuple(parts[ref] for ref in sorted(parts))


def _from_input(item: ReadyInput, component: Component) -> Part:
    return Part(
        ref=item.planned.name,
        name=item.planned.name,
        version=item.version,
        title=component.title,
        licence=said(item.license),
        supplier=component.supplier,
        purl=None if item.pin is None else package_url(item.pin, component),
        files=component.files,
        folder=item.planned.name,
        sources=source_urls(item, component),
        item=item,
        role=item.planned.role,
    )


def _from_packages(wanted: Packages, tree: Path, inside: Part) -> list[Part]:
    """Return the packages below a folder. Copies of one version are one component with several places."""
    found = _READERS[wanted.kind](tree, wanted.folder)
    # What a recipe names lies in the folder itself; further down there may be other versions of it.
    named = {
        (package.name, package.version)
        for package in found
        if package.name in wanted.names
        and package.place.count("/") == f"{wanted.folder}/{package.name}".count("/")
    }
    copies: dict[str, list[Package]] = {}
    refs: dict[str, str] = {}
    for package in found:
        is_named = (package.name, package.version) in named
        refs[package.place] = package.name if is_named else str(package.purl)
        copies.setdefault(refs[package.place], []).append(package)
    if missing := [name for name in wanted.names if name not in copies]:
        raise ContractError(
            f"The finished tree's {wanted.folder} has no {', '.join(missing)}: is the source complete?"
        )
    return [_from_copies(ref, same, refs, inside) for ref, same in copies.items()]


def _from_copies(ref: str, copies: list[Package], refs: Mapping[str, str], inside: Part) -> Part:
    first = copies[0]
    needs = {refs[place] for package in copies for place in package.needs}
    return Part(
        ref=ref,
        name=first.name,
        version=first.version,
        title="",
        licence=first.licence,
        supplier=inside.supplier,
        author=first.author,
        purl=first.purl,
        files=tuple(sorted({name for package in copies for name in package.owns})),
        folder=f"{first.kind}/{first.name}@{first.version}",
        texts=tuple(text for package in copies for text in package.texts),
        sources=(str(first.purl),) if first.licence.asks_for_source else (),
        places=tuple(package.place for package in copies),
        # What makes it run is the runtime that it came with.
        needs=tuple(sorted((needs | {inside.ref}) - {ref})),
        role=inside.role,
    )
