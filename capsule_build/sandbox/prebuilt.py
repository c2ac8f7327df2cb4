"""A guest that came ready with the package, held against the digest that is recorded beside its sources."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.errors import CapsuleError
from .guest import PREBUILT, recorded
from .store import PREPARING

if TYPE_CHECKING:
    from collections.abc import Callable


def ready(sources: str, make: Callable[[], bytes], say: Callable[[str], None], *, language: str) -> bytes:
    """Return the guest that lies ready in the folder of its sources, else what `make` makes.

    Args:
        sources: That folder.
        make: Makes it from them.
        say: Hears that it is made.
        language: Whose guest it is.

    Raises:
        CapsuleError: The one that lies there isn't the recorded one. Errors of `make` come out as they are.
    """
    path = Path(sources, PREBUILT)
    if not path.is_file():
        say(PREPARING.format(f"making {language}'s guest"))
        return make()
    wasm = path.read_bytes()
    if hashlib.sha256(wasm).hexdigest() != recorded(sources):
        raise CapsuleError(
            f"{path} isn't the guest that its digest names.", hint="Install capsule-build again."
        )
    return wasm
