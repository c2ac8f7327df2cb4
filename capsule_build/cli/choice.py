"""Which bundles a command is about: those that are named, or all of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..resources import default_dist
from ..runtime.errors import UsageError

Bundles = Annotated[
    list[Path] | None, typer.Argument(metavar="[BUNDLE]...", help="Bundles. Default: all in dist/.")
]
Dist = Annotated[
    Path | None, typer.Option("--dist", metavar="DIR", help="Take all bundles of another folder.")
]


def choose_bundles(bundles: list[Path] | None, dist: Path | None) -> list[Path]:
    """Return the bundles that are named, or all of a folder.

    Raises:
        UsageError: Both are given, a bundle isn't there, or the folder holds none.
    """
    from ..release.outputs import find_bundles, require_bundle

    if bundles and dist:
        raise UsageError("Both bundles and --dist were given.", hint="Give one of them.")
    if bundles:
        for path in bundles:
            require_bundle(path)
        return bundles
    folder = dist or default_dist()
    found = find_bundles(folder)
    if not found:
        raise UsageError(f"{folder} holds no bundle.", hint="Build one: 'capsule-build all'.")
    return found
