"""JavaScript's guest: QuickJS as a WebAssembly component, with own modules in it. What it is made from."""

from __future__ import annotations

import _blake2
import os

from ...runtime.errors import CapsuleError
from .. import guest
from .. import wasmtime_abi as abi
from ..store import FORMAT

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

PINS: Final = "pins.lock.json"

_PARTS: Final = (".mjs", ".wit", PINS)
_FOLDERS: Final = ("", "node/", "wit/", "wit/deps/")


def sources() -> str:
    """Return the folder of the guest's own sources."""
    return f"{guest.sources()}/js"


def files() -> dict[str, bytes]:
    """Return the guest's own sources, and the pins of the rest, by their names in their folder."""
    found = {}
    try:
        for folder in _FOLDERS:
            with os.scandir(f"{sources()}/{folder}") as entries:
                for entry in entries:
                    if entry.name.endswith(_PARTS):
                        with open(entry.path, "rb") as stream:
                            found[folder + entry.name] = stream.read()
    except FileNotFoundError as error:
        raise CapsuleError(
            f"The sources of JavaScript's guest are missing: {error.filename}.",
            hint="Install capsule-build again.",
        ) from None
    return found


def guest_key() -> str:
    """Return the name that the compiled guest has in the store: it tells all that the code depends on."""
    total = _blake2.blake2b(f"wasmtime=={abi.VERSION}\n".encode(), digest_size=32)
    for name, content in sorted(files().items()):
        total.update(f"{name} {len(content)}\n".encode() + content)
    return f"javascript-{total.hexdigest()[:24]}-{FORMAT}-{os.uname().machine}"
