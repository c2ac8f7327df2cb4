"""A guest that came ready with the package, and the digest that it has by the record beside its sources."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..runtime.errors import CapsuleError
from .guest import PREBUILT

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD: Final = "guest.sha256"
"""The name of the file with the digest, beside the sources. Format: that of `sha256sum`."""


def recorded(sources: str) -> str:
    """Return the SHA-256 that a guest has, in hexadecimal, as it is recorded in the folder of its sources."""
    return Path(sources, RECORD).read_text().split()[0]


def ready(sources: str, make: Callable[[], bytes]) -> bytes:
    """Return the guest that lies ready in the folder of its sources, else what `make` makes.

    Raises:
        CapsuleError: The one that lies there isn't the recorded one. Errors of `make` come out as they are.
    """
    path = Path(sources, PREBUILT)
    if not path.is_file():
        return make()
    wasm = path.read_bytes()
    if hashlib.sha256(wasm).hexdigest() != recorded(sources):
        raise CapsuleError(
            f"{path} isn't the guest that its digest names.", hint="Install capsule-build again."
        )
    return wasm
