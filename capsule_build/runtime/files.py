"""Files are written to a temporary name and renamed: a failure leaves the old state."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1 << 20
"""How much of a file is held in memory at a time."""


@contextlib.contextmanager
def atomic_writer(path: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Open a temporary file in `path`'s folder that takes its name when the block ends without an error.

    The file is flushed to the disk before it is renamed. On any error, also an interrupt, the temporary
    file is removed and `path` is what it was.

    Args:
        path: The final name. Its folder must exist.
        mode: The permission bits, whatever the umask is.

    Raises:
        OSError: The folder is missing, not writable, or full.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fchmod(stream.fileno(), mode)
            os.fsync(stream.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write `data` to `path`, wholly or not at all (see `atomic_writer`)."""
    with atomic_writer(path, mode=mode) as stream:
        stream.write(data)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in lower-case hexadecimal, read in pieces of `CHUNK_BYTES`."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
