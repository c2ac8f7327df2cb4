"""`lock`: regenerates the registry lock from the bundles in dist/, checks it, or revokes a bundle in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..resources import checkout, default_dist
from ..runtime.errors import UsageError
from ..runtime.platforms import Platform
from ..runtime.registry import TASK_PLATFORM
from . import panels
from .output import Json, err, out, print_json

if TYPE_CHECKING:
    from ..lock import Change, Update
    from ..runtime.registry import Task, Variant

SCHEMA_VERSION = "capsule-build.lock.v1"

Dist = Annotated[Path | None, typer.Option("--dist", metavar="DIR", help="The folder of bundles.")]
Lock = Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="The registry lock.")]
Replace = Annotated[bool, typer.Option("--replace", help="Let a digest change under an unchanged tag.")]
BaseUrl = Annotated[
    list[str] | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="Where the bundles can be had from: their file names are put behind it. Can be repeated.",
    ),
]
AllowOverrides = Annotated[
    bool,
    typer.Option(
        "--allow-overrides",
        help="Take bundles too that weren't made of their pins: for a lock for tests, which --lock names.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("lock", rich_help_panel=panels.RELEASE)(lock)


def lock(
    dist: Dist = None,
    file: Lock = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when it differs.")] = False,
    replace: Replace = False,
    base_url: BaseUrl = None,
    allow_overrides: AllowOverrides = False,
    revoke: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--revoke",
            metavar="TAG PLATFORM",
            help="Say that a bundle must not be used any more. A task: its name and wasm32.",
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why: one line for those who ask for it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Regenerate the registry lock from the bundles in dist/."""
    # Reads provenance, whose models take a while to import.
    from ..lock import check_lock, parse_base_url, update_lock

    path = lock_path(file)
    if (revoke is None) != (reason is None):
        raise UsageError("--revoke and --reason go together.")
    if revoke is not None and reason is not None:
        if check or replace or base_url or allow_overrides or dist:
            raise UsageError("--revoke reads no bundles: it goes with --reason and --lock alone.")
        _revoke(path, *revoke, reason, as_json=as_json)
        return
    if check and replace:
        raise UsageError("--check writes nothing, so --replace means nothing beside it.")
    bases = [parse_base_url(text) for text in base_url or ()]
    folder = dist or default_dist()
    if check:
        update = check_lock(path, folder, base_urls=bases, allow_overrides=allow_overrides)
    else:
        update = update_lock(
            path, folder, replace_digests=replace, base_urls=bases, allow_overrides=allow_overrides
        )
    if as_json:
        print_json({"schema_version": SCHEMA_VERSION, "lock": str(path), **update_json(update)})
        return
    print_passed_over(update)
    print_changes(path, update.changes)


def lock_path(file: Path | None) -> Path:
    """Return the registry lock that is meant: the one named, else the checkout's."""
    return file or (checkout() or Path()) / "registry.lock.json"


def print_changes(path: Path, changes: tuple[Change, ...]) -> None:
    """Print what changed in a lock."""
    from ..lock import describe

    if not changes:
        out().print(f"{path} is up to date.", markup=False)
        return
    bundles = "1 bundle" if len(changes) == 1 else f"{len(changes)} bundles"
    out().print(f"{path}: {bundles} changed.", markup=False)
    out().print(describe(changes), markup=False)


def print_passed_over(update: Update) -> None:
    """Print, as notes, which bundles a lock doesn't name."""
    for item in update.passed_over:
        err().print(f"{item.bundle.name} isn't in it: {item.reason}.", markup=False)


def update_json(update: Update) -> dict[str, Any]:
    """Return what became of a lock, for machines."""
    return {
        "changes": [
            {
                "tag": change.tag,
                "platform": str(change.platform),
                "before": change.before and change.before.sha256,
                "after": change.after and change.after.sha256,
                "urls": list(change.after.urls) if change.after else [],
            }
            for change in update.changes
        ],
        "passed_over": [{"bundle": str(item.bundle), "reason": item.reason} for item in update.passed_over],
    }


def _revoke(path: Path, tag: str, platform: str, reason: str, *, as_json: bool) -> None:
    from ..lock import revoke, revoke_task

    if platform == TASK_PLATFORM:
        bundle: Variant | Task = revoke_task(path, tag, reason)
    else:
        bundle = revoke(path, tag, Platform.parse(platform), reason)
    if as_json:
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "lock": str(path),
                "revoked": {
                    "tag": tag,
                    "platform": platform,
                    "sha256": bundle.sha256,
                    "reason": bundle.revoked,
                },
            }
        )
        return
    out().print(f"{path}: {tag} {platform} ({bundle.sha256}) is revoked: {bundle.revoked}", markup=False)
