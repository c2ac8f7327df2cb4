"""What a bundle was made from, so that it is made again when that changes, and only then.

Beside the files that were read, it depends on those that weren't there: a new file may be what an import
means from now on. So the names in their folders count, and the `package.json` of each.
"""

from __future__ import annotations

import _blake2
import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

_PACKAGES: Final = "node_modules"
_SETTLED_NS: Final = 20_000_000
"""How long before its use a file must have been changed last: the kernel's clock for that moves in steps."""

Witness = list[list[str | None]]
"""Pairs of a path and the digest of what is there: a file's bytes; with a final slash, a folder's names."""


def watch(inputs: Iterable[str], folder: str) -> Witness:
    """Return what a bundle depends on.

    Args:
        inputs: The files that were read, by their real paths.
        folder: The real path of the first one's folder.
    """
    files = set(inputs)
    folders: set[str] = set()
    for path in inputs:
        parent = os.path.dirname(path)
        while parent not in folders and parent != "/":
            folders.add(parent)
            if parent == folder:
                break
            parent = os.path.dirname(parent)
    above = folder
    while above != "/":
        above = os.path.dirname(above)
        # Made later, it could have a package that an import means.
        files.add(os.path.join(above, _PACKAGES, ".package-lock.json"))
        folders.add(os.path.join(above, _PACKAGES))
    files |= {os.path.join(one, "package.json") for one in folders}
    paths = sorted(files) + sorted(f"{one}/" for one in folders)
    return [[path, _digest(path)] for path in paths]


def holds(witness: Witness) -> bool:
    """Say whether everything is as it was."""
    return all(_digest(str(path)) == digest for path, digest in witness)


def is_settled(witness: Witness, since_ns: int) -> bool:
    """Say whether nothing was changed at or after a moment, in nanoseconds since 1970."""
    for path, digest in witness:
        if digest is not None:
            try:
                if os.stat(str(path)).st_ctime_ns > since_ns - _SETTLED_NS:
                    return False
            except OSError:
                return False
    return True


def _digest(path: str) -> str | None:
    try:
        if path.endswith("/"):
            data = "\0".join(sorted(os.listdir(path))).encode("utf-8", "surrogateescape")
        else:
            with open(path, "rb") as stream:
                data = stream.read()
    except OSError:
        return None
    return _blake2.blake2b(data, digest_size=16).hexdigest()
