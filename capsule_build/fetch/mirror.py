"""A source mirror: inputs by digest, as `sha256/<digest>`, in a folder or behind a URL.

`CAPSULE_SOURCE_MIRROR` names one; it is asked before any origin. `pins export` writes one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Final

from ..runtime.errors import InputError, UsageError
from ..runtime.files import atomic_writer, sha256_file, write_atomically
from .location import Location
from .transfer import NotThereError, StorageError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ..pins import Pin
    from .transfer import Transfer

VARIABLE: Final = "CAPSULE_SOURCE_MIRROR"
INDEX_SCHEMA: Final = "capsule-build.sources.v1"


def source_mirror() -> Location | None:
    """Return the mirror that `CAPSULE_SOURCE_MIRROR` names, if it is set.

    Raises:
        UsageError: It is set to something that is no mirror.
    """
    text = os.environ.get(VARIABLE)
    return Location.parse(text, VARIABLE) if text else None


def ask(place: Location, pin: Pin, transfer: Transfer, say: Callable[[str], None]) -> Path | None:
    """Take a file from the source mirror. Its digest is not checked here.

    Returns:
        The file, or `None` when the mirror doesn't have it or can't be asked: then the origin is.
    """
    file = transfer.folder / "from-mirror"
    try:
        place.fetch(f"sha256/{pin.sha256}", file, transfer=transfer, size=pin.size)
    except NotThereError:
        return None
    except StorageError:
        raise
    except InputError as error:
        missing = "can't be asked" if isinstance(error, UnreachableError) else "has another file"
        say(f"The source mirror {missing} for {pin.label}; its origin is asked. {error.message}")
        return None
    return file


def prepare_export(folder: Path) -> None:
    """Make a mirror's folder and see that it can be written to: what takes long comes behind that.

    Raises:
        UsageError: It can't be made or written to.
    """
    try:
        (folder / "sha256").mkdir(parents=True, exist_ok=True)
        # Asked by doing it: root may write anywhere by its modes, but not to every file system.
        with tempfile.TemporaryFile(dir=folder / "sha256"), tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error


def export(files: Iterable[tuple[Pin, Path]], folder: Path) -> int:
    """Lay inputs out as a source mirror, with an `index.json` that says what is what.

    What is there and right is kept; an index of earlier exports is added to.

    Args:
        files: Pins with their files, each checked.
        folder: The mirror's folder; made if it is missing.

    Returns:
        How many bytes the files of these pins have.

    Raises:
        UsageError: The folder can't be written.
    """
    total = 0
    index: dict[str, dict[str, Any]] = {}
    try:
        (folder / "sha256").mkdir(parents=True, exist_ok=True)
        index = _old_index(folder)
        for pin, file in files:
            target = folder / "sha256" / pin.sha256
            if not (target.is_file() and sha256_file(target) == pin.sha256):
                with file.open("rb") as source, atomic_writer(target) as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
            size = target.stat().st_size
            entry = index.setdefault(pin.sha256, {"file": pin.file, "size": size, "packages": []})
            entry["packages"] = sorted({*entry["packages"], pin.reference})
            total += size
        document = {"schema_version": INDEX_SCHEMA, "files": dict(sorted(index.items()))}
        write_atomically(folder / "index.json", (json.dumps(document, indent=2) + "\n").encode())
    except OSError as error:
        raise _unwritable(folder, error) from error
    return total


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"{folder} can't be written: {error.strerror or error}.")


def _old_index(folder: Path) -> dict[str, dict[str, Any]]:
    # The index is for people; one that can't be read is written anew.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads((folder / "index.json").read_bytes())
        if document["schema_version"] == INDEX_SCHEMA:
            files = document["files"]
            return {digest: files[digest] for digest in files if (folder / "sha256" / digest).is_file()}
    return {}
