"""Reads single files out of a Debian package.

Format: deb(5), an ar(5) archive whose members `control.tar.<compression>` and `data.tar.<compression>` hold
what the package says of itself, and its files. Only the build's first program, a static shell, is taken this
way; everything else is unpacked by that shell, inside the build.
"""

from __future__ import annotations

import io
import lzma
import re
import tarfile
import zlib
from typing import TYPE_CHECKING, Final

from .runtime.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

_MAGIC: Final = b"!<arch>\n"
_HEADER_BYTES: Final = 60
_FIELD: Final = re.compile(r"^([A-Za-z][A-Za-z-]*):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_MAX_ARCHIVE_BYTES: Final = 64 << 20
"""Larger than any package that is read this way; what is larger is not such a package."""


def read_member(package: Path, name: str) -> bytes:
    """Return the bytes of the file `name` (`usr/bin/busybox`) of a package.

    Raises:
        InputError: It isn't a Debian package, or has no such file.
    """
    return _read(package, "data.tar", name)


def control_fields(package: Path) -> dict[str, str]:
    """Return what a package says of itself, by field.

    Format: deb-control(5). Lines that go on a field's text are left out.

    Raises:
        InputError: It isn't a Debian package.
    """
    control = _read(package, "control.tar", "control").decode("utf-8", "replace")
    return dict(_FIELD.findall(control))


def control_field(package: Path, field: str) -> str:
    """Return a field (`Version`) of what a package says of itself.

    Raises:
        InputError: It isn't a Debian package, or lacks the field.
    """
    value = control_fields(package).get(field, "")
    if not value or " " in value:
        raise InputError(f"{package.name} has no field {field}.")
    return value


def _read(package: Path, archive: str, name: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(_ar_member(package, archive)), mode="r:*") as packed:
            member = packed.extractfile(f"./{name}")
            if member is None:
                raise InputError(f"{package.name} has no regular file {name}.")
            return member.read()
    except (KeyError, ValueError, OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{package.name} is not a Debian package with a file {name}: {error}.") from error


def _ar_member(package: Path, prefix: str) -> bytes:
    with package.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it isn't an ar archive")
        while header := stream.read(_HEADER_BYTES):
            if len(header) != _HEADER_BYTES or header[58:] != b"`\n":
                raise ValueError("a member's header is malformed")
            size = int(header[48:58])
            if size < 0:
                raise ValueError("a member's size is negative")
            if header.startswith(prefix.encode()):
                if size > _MAX_ARCHIVE_BYTES:
                    raise ValueError(f"its {prefix} is too large")
                return stream.read(size)
            stream.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError(f"it has no {prefix}")
