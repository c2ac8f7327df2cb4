"""`lock`: regenerates the registry lock from the bundles in dist/."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..lock import describe, update_lock
from ..resources import checkout, default_dist
from . import options
from .output import out, print_json

SCHEMA_VERSION = "capsule-build.lock.v1"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("lock")(lock)


def lock(
    dist: Annotated[Path | None, typer.Option("--dist", metavar="DIR", help="The folder of bundles.")] = None,
    file: Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="The registry lock.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when it differs.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Let a digest change under an unchanged tag.")
    ] = False,
    as_json: bool = options.JSON,
) -> None:
    """Regenerate the registry lock from the bundles in dist/."""
    path = file or (checkout() or Path()) / "registry.lock.json"
    changes = update_lock(path, dist or default_dist(), check=check, replace_digests=replace)
    if as_json:
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "lock": str(path),
                "changes": [
                    {
                        "tag": change.tag,
                        "platform": str(change.platform),
                        "before": change.before,
                        "after": change.after,
                    }
                    for change in changes
                ],
            }
        )
    else:
        out().print(
            f"{path}: {len(changes)} changed." + (f"\n{describe(changes)}" if changes else ""), markup=False
        )
