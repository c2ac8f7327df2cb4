"""Removes the images that builds leave, layer by layer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def remove_layers(
    listed: Callable[[], set[str]], remove: Callable[[str], None], *, refusals: tuple[type[Exception], ...]
) -> None:
    """Remove images. A layer goes only after those on top of it: again until nothing more goes.

    Args:
        listed: Returns those that are there.
        remove: Removes one.
        refusals: What it raises where one can't go, or has gone already.
    """
    before: set[str] = set()
    while (now := listed()) != before:
        before = now
        for image in now:
            with contextlib.suppress(*refusals):
                remove(image)
