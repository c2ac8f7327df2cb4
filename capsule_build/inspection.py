"""What is in a bundle: components, sizes, and what its ELF files ask of a machine.

The bundle is read once, from front to back, and its contract is checked on the way. An ELF file's head is not
all at its beginning, so each is spooled to a temporary file; nothing else is kept.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from .runtime.archive import BundleInfo, Content, Kind, open_bundle
from .runtime.elf import MAGIC, Elf, ElfError, read_elf
from .sbom.reading import read_components

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from .sbom.reading import Listed

INSPECTION_SCHEMA: Final = "capsule-build.inspection.v1"

_CHUNK_BYTES: Final = 1 << 20
_SPOOLED_IN_MEMORY: Final = 4 << 20
_TWO_LEVELS: Final = frozenset({"abi", "runtime"})
_PRIVATE: Final = "abi/"
"""Where a bundle's own loaders and libraries lie."""
_VERSION = re.compile(r"(?P<family>[A-Za-z][A-Za-z0-9_]*?)_(?P<number>[0-9]+(?:\.[0-9]+)*)")
_GLIBC_NAMES = re.compile(r"(?:ld-linux.*|ld64|libc|libm|libpthread|libdl|librt)\.so\.[0-9]+")
_MUSL_NAMES = re.compile(r"ld-musl-.*\.so\.[0-9]+|libc\.musl-.*\.so\.[0-9]+|libc\.so")


class Abi(Enum):
    """Which C library an ELF file goes with."""

    GLIBC = "glibc"
    MUSL = "musl"
    STATIC = "static"
    """A program that carries its C library in itself."""
    NONE = "none"
    """A library that asks for no C library: any process can load it."""


@dataclass(frozen=True)
class Area:
    """A top folder of the bundle (of `abi` and `runtime`: each folder in them) with its regular files."""

    name: str
    files: int
    size: int


@dataclass(frozen=True)
class ElfFile:
    """An ELF file in a bundle.

    Attributes:
        name: Its name in the bundle.
        size: Its size in bytes.
        abi: The C library that it goes with.
        elf: Its head.
        requires: The highest symbol version that it needs, by family: `{"GLIBC": "2.28"}`.
    """

    name: str
    size: int
    abi: Abi
    elf: Elf
    requires: Mapping[str, str]


@dataclass(frozen=True)
class Inspection:
    """What is in a bundle.

    Attributes:
        info: The bundle's manifest, digest and sizes.
        components: The components by name.
        areas: Where the unpacked bytes are.
        elves: The ELF files by name.
        requires: The highest symbol version that any of them needs, by family: what the private libraries
            must have. What those need of each other doesn't count.
        unreadable: Files that begin as ELF does, but are broken: their names, and why.
    """

    info: BundleInfo
    components: tuple[Listed, ...]
    areas: tuple[Area, ...]
    elves: tuple[ElfFile, ...]
    requires: Mapping[str, str]
    unreadable: Mapping[str, str]

    def to_json(self) -> dict[str, object]:
        """Return all of it as JSON values, in the format that `INSPECTION_SCHEMA` names."""
        return {
            "schema_version": INSPECTION_SCHEMA,
            **describe(self.info),
            "components": [
                {
                    "name": part.name,
                    "version": part.version,
                    "licenses": list(part.licenses),
                    "ref": part.ref,
                }
                for part in self.components
            ],
            "areas": [{"name": area.name, "files": area.files, "bytes": area.size} for area in self.areas],
            "elf": [
                {
                    "name": file.name,
                    "bytes": file.size,
                    "abi": file.abi.value,
                    "machine": file.elf.machine,
                    "bits": file.elf.bits,
                    "type": file.elf.type,
                    "interpreter": file.elf.interpreter,
                    "needed": list(file.elf.needed),
                    "soname": file.elf.soname,
                    "rpath": file.elf.rpath,
                    "runpath": file.elf.runpath,
                    "requires": dict(file.requires),
                }
                for file in self.elves
            ],
            "requires": dict(self.requires),
            "unreadable": dict(sorted(self.unreadable.items())),
        }


def describe(info: BundleInfo) -> dict[str, object]:
    """Return what a bundle is as JSON values: its digest, sizes and manifest."""
    manifest = info.manifest
    return {
        "sha256": info.sha256,
        "bytes": info.size,
        "unpacked_bytes": info.unpacked_bytes,
        "members": info.members,
        "runtime": {"id": manifest.runtime_id, "version": manifest.runtime_version},
        "platform": str(manifest.platform),
        "install_root": manifest.install_root,
        "launcher": manifest.launcher,
        "tools": dict(sorted(manifest.tools.items())),
    }


def inspect_bundle(path: Path) -> Inspection:
    """Look into a bundle, and check its contract while doing so.

    Raises:
        UsageError: The file can't be read.
        ContractError: The bundle breaks its contract, or its SBOM isn't CycloneDX.
    """
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    elves: list[ElfFile] = []
    unreadable: dict[str, str] = {}
    with open_bundle(path) as reader:
        for member, content in reader:
            if member.kind is not Kind.FILE:
                continue
            area = area_of(member.name)
            files[area] += 1
            sizes[area] += member.size
            first = content.read(len(MAGIC))
            if first == MAGIC:
                try:
                    elves.append(_inspect_elf(member.name, member.size, first, content))
                except ElfError as error:
                    unreadable[member.name] = error.message
        return Inspection(
            info=reader.info,
            components=read_components(reader.sbom),
            areas=tuple(Area(name, files[name], sizes[name]) for name in sorted(sizes)),
            elves=tuple(sorted(elves, key=lambda file: file.name)),
            requires=highest(
                f"{family}_{number}"
                for file in elves
                if not file.name.startswith(_PRIVATE)
                for family, number in file.requires.items()
            ),
            unreadable=unreadable,
        )


def area_of(name: str) -> str:
    """Return the part of the bundle that a member is counted to."""
    components = name.split("/")
    if len(components) > 2 and components[0] in _TWO_LEVELS:
        return "/".join(components[:2])
    return components[0] if len(components) > 1 else "."


def abi_of(name: str, elf: Elf) -> Abi:
    """Tell which C library an ELF file goes with.

    What the kernel would start for it says so; else what it asks for; else, of the C libraries themselves,
    their own names.

    Args:
        name: The file's name in the bundle.
        elf: Its head.
    """
    if elf.interpreter is not None:
        return Abi.MUSL if _MUSL_NAMES.fullmatch(_base(elf.interpreter)) else Abi.GLIBC
    if elf.is_static:
        return Abi.STATIC
    own = () if elf.soname is None else (elf.soname,)
    for names in ((*elf.needed, *elf.versions), (*own, f"/{name}")):
        for wanted in names:
            if _MUSL_NAMES.fullmatch(_base(wanted)) or "/abi/musl/" in wanted:
                return Abi.MUSL
            if _GLIBC_NAMES.fullmatch(_base(wanted)) or "/abi/glibc/" in wanted:
                return Abi.GLIBC
    return Abi.NONE


def highest(versions: Iterable[str]) -> dict[str, str]:
    """Return the highest of symbol versions by family: `GLIBC_2.4`, `GLIBC_2.28` give `{"GLIBC": "2.28"}`.

    Names without a number, such as `GLIBC_PRIVATE`, say nothing about a version and don't count.
    """
    found: dict[str, str] = {}
    for version in versions:
        match = _VERSION.fullmatch(version)
        if match and _order(match["number"]) > _order(found.get(match["family"], "")):
            found[match["family"]] = match["number"]
    return dict(sorted(found.items()))


def _inspect_elf(name: str, size: int, first: bytes, content: Content) -> ElfFile:
    with tempfile.SpooledTemporaryFile(max_size=_SPOOLED_IN_MEMORY) as spool:
        spool.write(first)
        while chunk := content.read(_CHUNK_BYTES):
            spool.write(chunk)
        elf = read_elf(spool)
    needed = (version for versions in elf.versions.values() for version in versions)
    return ElfFile(name=name, size=size, abi=abi_of(name, elf), elf=elf, requires=highest(needed))


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def _order(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split("."))) if number else ()
