"""The guest: CPython as a WebAssembly component, with own modules in it. `making` makes it of these."""

from __future__ import annotations

import _blake2
import os

from ..runtime.errors import CapsuleError
from . import wasmtime_abi as abi

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

COMPONENTIZE: Final = "0.25.1"
"""The version of componentize-py, which carries CPython 3.14 for WASI."""

PREBUILT: Final = "guest.wasm"
"""The name of the guest that a wheel has ready, beside its sources."""


RECORD: Final = "guest.sha256"
"""The name of the file with the digest that a guest has, beside its sources. Format: that of `sha256sum`."""


def recorded(folder: str) -> str:
    """Return the SHA-256 that a guest has, in hexadecimal, as it is recorded in the folder of its sources.

    Raises:
        CapsuleError: The record isn't there.
    """
    try:
        with open(f"{folder}/{RECORD}", encoding="ascii") as stream:
            return stream.read().split()[0]
    except (OSError, ValueError, IndexError):
        raise CapsuleError(
            f"The guest's digest {folder}/{RECORD} can't be read.", hint="Install capsule-build again."
        ) from None


def sources() -> str:
    """Return the folder of the guest's own sources: `guest/` in a checkout, or the installed package's."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = f"{package}/_data/guest"
    return installed if os.path.isdir(installed) else f"{os.path.dirname(package)}/guest"


def files() -> dict[str, bytes]:
    """Return the guest's own sources by their names in their folder."""
    found = {}
    for folder in ("", "capsule/"):
        with os.scandir(f"{sources()}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".wit", ".c")):
                    with open(entry.path, "rb") as stream:
                        found[folder + entry.name] = stream.read()
    if "task.wit" not in found:
        raise CapsuleError(
            f"The guest's sources are missing from {sources()}.", hint="Install capsule-build again."
        )
    return found


def digest() -> str:
    """Return the BLAKE2b digest of what a guest is made from: own sources, and versions of the rest."""
    # Asked before every task, and `hashlib` loads OpenSSL, which takes longer than all else that is done.
    total = _blake2.blake2b(
        f"componentize-py=={COMPONENTIZE}\nwasmtime=={abi.VERSION}\n".encode(), digest_size=32
    )
    for name, content in sorted(files().items()):
        total.update(f"{name} {len(content)}\n".encode() + content)
    return total.hexdigest()
