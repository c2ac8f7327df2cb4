"""What a look-up at an origin found, before its bytes are here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """A file at its origin.

    Attributes:
        version: The package's version.
        file: The file's name.
        sha256: The digest that the origin's index gives; `None` when it gives none.
        size: The size in bytes that the origin's index gives; `None` when it gives none.
        locator: Where it lies there (see `pins.Pin.locator`).
    """

    version: str
    file: str
    sha256: str | None = None
    size: int | None = None
    locator: str = ""
