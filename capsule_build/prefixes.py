"""An installed prefix (pyenv's, a system's) as an archive in upstream's layout, made self-contained.

What the recipe names is taken. The libraries that its programs and extension modules link to come along, as
the prefix's own loader finds them on this machine, each with its licence text where the system's package
database knows one. The C library and its family stay behind: the capsule has its own.
"""

from __future__ import annotations

import fnmatch
import io
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .licence_texts import FOLDER as TEXTS
from .runtime.elf import MAGIC, read_elf
from .runtime.errors import ContractError, InputError, UsageError
from .runtime.files import atomic_writer
from .runtime.process import ProgramMissingError, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .recipes import RuntimeChoice

TOP: Final = "python"
"""The archive's top folder, as upstream's archives have it."""

_LOADER_SECONDS: Final = 30.0
_CAPSULES_OWN: Final = re.compile(
    r"ld-(?:linux|musl)[^/]*\.so\.\d|libc\.so(?:\.6)?|libc\.musl-.*"
    r"|lib(?:m|dl|pthread|rt|util|resolv|anl|mvec|nsl|nss_\w+|stdc\+\+|gcc_s|z)\.so\.\d+|linux-vdso\.so\.1"
)
_LISTED: Final = re.compile(r"\s*(\S+) => (/\S+)")
_MISSING: Final = re.compile(
    r"error while loading shared libraries: (\S+): cannot open"
    r"|Error loading shared library (\S+):"
    r"|(\S+) => not found"
)
_COMMON_LICENCE: Final = re.compile(r"/usr/share/common-licenses/([\w.-]*\w)")


def pack_prefix(prefix: Path, choice: RuntimeChoice, target: Path) -> Path:
    """Write a prefix as an archive of upstream's layout.

    Args:
        prefix: The folder that holds `choice.marker`.
        choice: The runtime, which says what is taken of a prefix.
        target: The tar to write.

    Returns:
        `target`.

    Raises:
        UsageError: It isn't a prefix of that runtime, or this runtime is taken from archives only.
        InputError: A library that it links to isn't on this machine; all such are named.
    """
    if not choice.prefix_takes:
        raise UsageError(f"--source {choice.name}={prefix} is a folder; an archive is needed here.")
    program = prefix / choice.marker
    if not program.is_file():
        raise UsageError(
            f"--source {choice.name}={prefix}: the prefix has no {choice.marker}.",
            hint="Give the folder that was the installation's --prefix, or an archive.",
        )
    files = dict(_taken(prefix, choice))
    found = _libraries(program, files.values())
    libraries = {name: path for name, path in found.items() if f"lib/{name}" not in files}
    with (
        atomic_writer(target) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in sorted(files.items()):
            _add(archive, f"{TOP}/{name}", path, prefix)
        for name, path in sorted(libraries.items()):
            _add(archive, f"{TOP}/lib/{name}", path.resolve(), prefix)
        for name, text in sorted(_licences(libraries).items()):
            _add_bytes(archive, f"{TOP}/{TEXTS}/LICENSE.{name}.txt", text)
    return target


def _taken(prefix: Path, choice: RuntimeChoice) -> Iterator[tuple[str, Path]]:
    for pattern in choice.prefix_takes:
        for found in sorted(prefix.glob(pattern)):
            inside = sorted(found.rglob("*")) if found.is_dir() else [found]
            for path in inside:
                name = path.relative_to(prefix)
                left = any(fnmatch.fnmatchcase(str(name), leaves) for leaves in choice.prefix_leaves)
                if not left and (path.is_symlink() or path.is_file()):
                    yield name.as_posix(), path


def _libraries(program: Path, files: Iterable[Path]) -> dict[str, Path]:
    """Return what the files link to, by the names that they ask for, without the C library's family."""
    with program.open("rb") as stream:
        loader = read_elf(stream).interpreter
    if loader is None:
        return {}
    found: dict[str, Path] = {}
    missing: set[str] = set()
    for path in files:
        if not _is_linked(path):
            continue
        # The loader lists what it would load, and runs nothing of it.
        listed = run([loader, "--list", str(path)], env={"LC_ALL": "C"}, timeout=_LOADER_SECONDS, check=False)
        for line in listed.text.splitlines():
            match = _LISTED.match(line)
            if match and not _CAPSULES_OWN.fullmatch(Path(match[1]).name):
                found[Path(match[1]).name] = Path(match[2])
        for names in _MISSING.findall(listed.text + listed.error_text):
            missing.add(f"{path.name} needs {''.join(names)}")
    if missing:
        raise InputError(
            "The prefix can't be made self-contained; its loader doesn't find: "
            + "; ".join(sorted(missing))
            + ".",
            hint="Install these libraries, or remove the extension modules that need them.",
        )
    return found


def _is_linked(path: Path) -> bool:
    with path.open("rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            return False
        try:
            return bool(read_elf(stream).needed)
        except ContractError:
            return False


def _licences(libraries: Mapping[str, Path]) -> dict[str, bytes]:
    """Return the licence texts of libraries that Debian packages brought, by the libraries' names."""
    names: dict[str, str] = {}
    for name, path in libraries.items():
        for real in (path, path.resolve()):
            # The database may know a file by its place before /lib and /usr/lib became one.
            names |= {str(real): name, str(real).removeprefix("/usr"): name}
    if not names:
        return {}
    try:
        listed = run(["dpkg-query", "--search", *sorted(names)], env={"LC_ALL": "C"}, check=False)
    except ProgramMissingError:
        return {}
    texts = {}
    for line in listed.text.splitlines():
        owner, _, owned = line.partition(": ")
        text = _copyright(re.split("[:,]", owner)[0])
        if owned in names and text is not None:
            texts[names[owned]] = text
    return texts


def _copyright(package: str) -> bytes | None:
    """Return a Debian package's licence text, with the common texts that it refers to."""
    file = Path("/usr/share/doc") / package / "copyright"
    if not file.is_file():
        return None
    text = file.read_bytes()
    for name in sorted(set(_COMMON_LICENCE.findall(text.decode("utf-8", "replace")))):
        common = Path("/usr/share/common-licenses") / name
        if common.is_file():
            text += f"\n\n--- {name} ---\n\n".encode() + common.read_bytes()
    return text


def _add(archive: tarfile.TarFile, name: str, path: Path, prefix: Path) -> None:
    """Add a file or link. A link that leads out of the prefix is replaced by what it leads to."""
    if path.is_symlink():
        target = path.readlink()
        if not target.is_absolute() and path.resolve().is_relative_to(prefix.resolve()):
            link = tarfile.TarInfo(name)
            link.type = tarfile.SYMTYPE
            link.linkname = str(target)
            archive.addfile(link)
            return
    with path.open("rb") as stream:
        member = tarfile.TarInfo(name)
        member.size = path.stat().st_size
        member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        archive.addfile(member, stream)


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
