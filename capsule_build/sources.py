"""The user's own inputs: `--source NAME=PATH` puts a file in a pin's place.

A runtime (Node.js, CPython) is taken from an archive in upstream's own layout, whose root and version are
found as the recipe says, or from an installed prefix, where the recipe says what to take of one. Any
other component is taken from a file of the kind that its pin names. What is taken is brought into the
form that the build unpacks, and hashed as the user gave it.
"""

from __future__ import annotations

import contextlib
import gzip
import lzma
import re
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Final

import zstandard
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from .debian_archive import control_field
from .prefixes import pack_prefix
from .runtime.errors import InputError, UsageError
from .runtime.files import CHUNK_BYTES, atomic_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .plan import PlannedInput
    from .recipes import RuntimeChoice

SUFFIXES: Final = (".tar.gz", ".tgz", ".tar.xz", ".tar.zst", ".tar", ".zip", ".whl")
_MAX_VERSION_FILE_BYTES: Final = 1 << 20


def parse_sources(values: Sequence[str]) -> dict[str, Path]:
    """Read the values of `--source`.

    Raises:
        UsageError: One isn't `NAME=PATH`, names something twice, or names a file that isn't there.
    """
    sources: dict[str, Path] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name or not text:
            raise UsageError(f"--source '{value}' is not of the form NAME=PATH.")
        if name in sources:
            raise UsageError(f"--source names '{name}' twice.")
        path = Path(text)
        if not path.exists():
            raise UsageError(f"--source {name}={text}: there is no such file.")
        sources[name] = path
    return sources


def stage_source(planned: PlannedInput, choices: Mapping[str, RuntimeChoice], folder: Path) -> Path:
    """Bring a user's own input into the form that the build unpacks.

    Args:
        planned: The input, with its `source`.
        choices: The recipe's runtimes, by name.
        folder: Where a converted file may be written.

    Returns:
        The file for the build context: the user's own, or one in `folder`.

    Raises:
        UsageError: Its form isn't known, or its version differs from the one asked for.
        InputError: It is damaged.
    """
    source = planned.source
    if source is None:
        raise ValueError(planned.name)
    choice = choices.get(planned.name)
    if choice is None:
        if source.suffix != PurePath(planned.file).suffix:
            raise UsageError(
                f"--source {planned.name}={source} can't take the place of {planned.file}.",
                hint="Where a pin names a Debian package or a wheel, the source must be one too.",
            )
        version = _package_version(source)
        staged = source
    else:
        staged = folder / f"{planned.name}.tar"
        if source.is_dir():
            pack_prefix(source, choice, staged)
        elif _needs_tar(source):
            _as_tar(source, staged)
        else:
            staged = source
        version = _archive_version(staged, choice, source)
    if version != planned.version:
        option = f"{choice.option} {version}" if choice else "a file of the pinned version"
        raise UsageError(
            f"--source {planned.name}={source} is version {version}; {planned.version} is asked for.",
            hint=f"Ask for it with {option}." if choice else f"Give {option}.",
        )
    return staged


def _needs_tar(source: Path) -> bool:
    # busybox knows no zstd, and unpacks a .tgz by its longer name only.
    return source.name.endswith((".tar.zst", ".tgz"))


def _as_tar(source: Path, target: Path) -> None:
    """Write the archive's own tar, without its compression."""
    try:
        with source.open("rb") as stream, atomic_writer(target) as out:
            pieces = _from_zstd(stream) if source.name.endswith(".tar.zst") else _from_gzip(stream)
            for piece in pieces:
                out.write(piece)
    except (OSError, EOFError, zstandard.ZstdError) as error:
        raise InputError(f"{source} can't be decompressed: {error}.") from error


def _from_gzip(stream: IO[bytes]) -> Iterator[bytes]:
    with gzip.open(stream, "rb") as packed:
        while piece := packed.read(CHUNK_BYTES):
            yield piece


def _from_zstd(stream: IO[bytes]) -> Iterator[bytes]:
    # The library's file object takes a frame that is cut off for its end.
    frame = zstandard.ZstdDecompressor().decompressobj()
    while packed := stream.read(CHUNK_BYTES):
        while packed:
            yield frame.decompress(packed)
            packed = frame.unused_data
            if packed:
                frame = zstandard.ZstdDecompressor().decompressobj()
    if not frame.eof:
        raise EOFError("it is cut off")


def _archive_version(archive: Path, choice: RuntimeChoice, source: Path) -> str:
    if not archive.is_file():
        raise UsageError(f"--source {choice.name}={source} is not an archive.", hint=_kinds())
    for name, read in _members(archive, choice, source):
        if name.endswith(f"/{choice.version_file}") or name == choice.version_file:
            text = read.decode("utf-8", "replace")
            found = re.search(choice.version_pattern, text, re.DOTALL)
            if found:
                return ".".join(part for part in found.groups() if part)
    raise InputError(
        f"--source {choice.name}={source}: no {choice.version_file} in it says a version.",
        hint=f"It should be upstream's archive, with {choice.marker} and {choice.version_file} in it.",
    )


def _members(archive: Path, choice: RuntimeChoice, source: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if archive.name.endswith((".zip", ".whl")):
            with zipfile.ZipFile(archive) as zipped:
                for entry in zipped.infolist():
                    if (
                        entry.filename.endswith(choice.version_file)
                        and entry.file_size <= _MAX_VERSION_FILE_BYTES
                    ):
                        yield entry.filename, zipped.read(entry)
        elif archive.name.endswith(SUFFIXES):
            with tarfile.open(archive) as packed:
                for member in packed:
                    if member.name.endswith(choice.version_file) and member.size <= _MAX_VERSION_FILE_BYTES:
                        stream = packed.extractfile(member)
                        if stream is not None:
                            yield member.name, stream.read()
        else:
            raise UsageError(f"--source {choice.name}={source}: its form isn't known.", hint=_kinds())
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError) as error:
        if _is_zip(archive) and not archive.name.endswith((".zip", ".whl")):
            raise UsageError(
                f"{source} is a zip archive or a wheel, which its name doesn't say.",
                hint="Its name must end in .zip, or be a wheel's (ending in .whl).",
            ) from error
        # tarfile lists what it has tried, over many lines.
        why = str(error).partition("\n")[0].rstrip(":")
        raise InputError(f"{source} is damaged: {why}.") from error


def _is_zip(archive: Path) -> bool:
    with contextlib.suppress(OSError):
        return zipfile.is_zipfile(archive)
    return False


def _package_version(source: Path) -> str:
    if source.name.endswith(".deb"):
        return control_field(source, "Version")
    try:
        return str(parse_wheel_filename(source.name)[1])
    except InvalidWheelFilename as error:
        raise UsageError(
            f"{source}: '{source.name}' is not a wheel's name, from which its version is read.",
            hint="Give it the name that it was published under: NAME-VERSION-PYTHON-ABI-PLATFORM.whl.",
        ) from error


def _kinds() -> str:
    return f"Known forms: {', '.join(SUFFIXES)}."
