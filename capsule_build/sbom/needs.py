"""What components need of each other, as the ELF files of a bundle say it themselves."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ..runtime.elf import MAGIC, Elf, ElfError, read_elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from .owners import ShippedFile


def needs_of_programs(tree: Path, files: Iterable[ShippedFile], install_root: str) -> dict[str, set[str]]:
    """Return, for each owner, the owners of the loaders and libraries that its ELF files ask for.

    Args:
        tree: The finished tree.
        files: Its regular files.
        install_root: Where the tree will lie: absolute names in ELF files begin with it.
    """
    owners = {file.name: file.owner for file in files}
    # A library can be asked for by the name of a link to it.
    real = {_inside(str(path), str(tree)): path for path in (tree / "abi").rglob("*") if path.is_symlink()}
    owners.update(
        (name, owners[target])
        for name, path in real.items()
        if (target := _inside(str(path.resolve()), str(tree.resolve()))) in owners
    )
    found: dict[str, set[str]] = {}
    for name, owner in list(owners.items()):
        elf = _elf(tree / name)
        if elf is not None:
            wanted = {owners[other] for other in _asked_for(name, elf, install_root, owners)}
            found.setdefault(owner, set()).update(wanted - {owner})
    return found


def _elf(path: Path) -> Elf | None:
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            return None
        stream.seek(0)
        try:
            return read_elf(stream)
        except ElfError:
            # Broken ELF files are part of some packages' tests; they ask for nothing.
            return None


def _asked_for(name: str, elf: Elf, install_root: str, owners: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that an ELF file names, as far as they are in the bundle."""
    search = [_inside(entry, install_root) for entry in f"{elf.rpath or ''}:{elf.runpath or ''}".split(":")]
    if elf.interpreter is not None:
        yield from filter(owners.__contains__, [_inside(elf.interpreter, install_root)])
        search.append(posixpath.dirname(_inside(elf.interpreter, install_root)))
    search.append(posixpath.dirname(name))
    for needed in elf.needed:
        # musl's C library goes by this name too, and is its loader.
        file = needed.replace("libc.musl-", "ld-musl-")
        places = [_inside(file, install_root)] if "/" in file else [f"{at}/{file}" for at in search]
        yield from list(filter(owners.__contains__, places))[:1]


def _inside(path: str, root: str) -> str:
    return path.removeprefix(f"{root}/")
