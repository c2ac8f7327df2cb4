"""Licence texts out of upstream's full archives, which hold much more than a build needs.

python-build-standalone puts the texts of all that it links into CPython in `python/licenses/` of its full
archives (tar in zstd, https://gregoryszorc.com/docs/python-build-standalone/main/distributions.html), and
leaves them out of those that are small enough to install from.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import zstandard

from .runtime.errors import InputError
from .runtime.files import atomic_writer

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "licenses"
"""The folder of the texts, in upstream's archives and in what is packed here."""

_MAX_TEXT_BYTES: Final = 1 << 20


def pack_texts(archive: Path, target: Path) -> Path:
    """Write a tar that holds only the licence texts of a full archive, in the folder `licenses`.

    The archive is read as a stream: it takes up gigabytes when it is unpacked.

    Args:
        archive: A .tar.zst with a folder `licenses` below its top folder.
        target: The tar to write.

    Returns:
        `target`.

    Raises:
        InputError: The archive is damaged, or has no texts.
    """
    texts: dict[str, bytes] = {}
    try:
        with zstandard.open(archive, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as packed:
            for member in packed:
                path = PurePosixPath(member.name)
                if member.isreg() and path.parts[1:2] == (FOLDER,) and member.size <= _MAX_TEXT_BYTES:
                    reader = packed.extractfile(member)
                    if reader is not None:
                        texts[path.name] = reader.read()
    except (OSError, EOFError, tarfile.TarError, zstandard.ZstdError) as error:
        raise InputError(f"{archive} is damaged: {error}.") from error
    if not texts:
        raise InputError(f"{archive} has no licence texts: it isn't a full archive of a release.")
    with (
        atomic_writer(target) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for name, text in sorted(texts.items()):
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(text)
            written.addfile(member, io.BytesIO(text))
    return target
