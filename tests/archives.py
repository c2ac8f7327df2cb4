"""Archives as inputs have them, made of what is in them."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def deb(
    files: Mapping[str, bytes], *, control: str = "", compression: str = "xz", before: bytes = b""
) -> bytes:
    """A Debian package.

    Args:
        files: Its files by their paths, without a leading slash.
        control: The text of its control file.
        compression: What both archives in it are compressed with: `xz`, `gz`, or nothing.
        before: Raw bytes of members that stand before the archives.
    """
    suffix = f".{compression}" if compression else ""
    members = [
        (f"control.tar{suffix}", tar_bytes({"./control": control.encode()}, compression)),
        (f"data.tar{suffix}", tar_bytes({f"./{name}": data for name, data in files.items()}, compression)),
    ]
    packed = b"".join(ar_member(name, data) for name, data in members)
    return b"!<arch>\n" + ar_member("debian-binary", b"2.0\n") + before + packed


def ar_member(name: str, data: bytes, *, size: str | None = None) -> bytes:
    """One member of an ar archive; `size` is what its header says, if that is not the truth."""
    said = str(len(data)) if size is None else size
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{said:<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)


def tar_bytes(files: Mapping[str, bytes], compression: str = "") -> bytes:
    """A tar of plain files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    if compression == "gz":
        return gzip.compress(out.getvalue(), mtime=0)
    return lzma.compress(out.getvalue(), preset=0) if compression == "xz" else out.getvalue()
