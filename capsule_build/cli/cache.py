"""`capsule-build cache`: what was downloaded, and getting rid of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..fetch.cache import Cache
from ..pins import load_pins
from ..resources import tool_pins
from ..sandbox.javascript import guest
from . import panels
from .definitions import load_definitions
from .grammar import App
from .output import Json, human_size, out, print_json, print_table
from .pins import counted, recipe_folder

if TYPE_CHECKING:
    from ..pins import Pin

SCHEMA: Final = "capsule-build.cache.v1"


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = App(no_args_is_help=True, help="Show or clean the cache of inputs.")
    group.command("list")(list_entries)
    group.command("prune")(prune)
    app.add_typer(group, name="cache", rich_help_panel=panels.INPUTS)


def list_entries(
    context: typer.Context,
    *,
    as_json: Json = False,
) -> None:
    """List the inputs that are in the cache, and which pins name them."""
    cache = Cache()
    names: dict[str, list[str]] = {}
    for pin in load_definitions(recipe_folder(context)).pins.pins:
        names.setdefault(pin.sha256, []).append(pin.label)
    for pin in _guest_pins():
        names.setdefault(pin.sha256, []).append(f"{pin.label} of JavaScript's guest")
    for pin in _tool_pins():
        names.setdefault(pin.sha256, []).append(f"{pin.label} of the checkout's tools")
    entries = cache.entries()
    if as_json:
        print_json(
            {
                "schema_version": SCHEMA,
                "root": str(cache.root),
                "files": [
                    {"sha256": entry.sha256, "size": entry.size, "pins": names.get(entry.sha256, [])}
                    for entry in entries
                ],
            }
        )
        return
    print_table(
        ("sha256", "size", "pins"),
        [
            (entry.sha256[:16], human_size(entry.size), ", ".join(names.get(entry.sha256, ["(none)"])))
            for entry in entries
        ],
    )
    total = sum(entry.size for entry in entries)
    out().print(f"{counted(len(entries), 'file')}, {human_size(total)}, in {cache.root}", markup=False)


def _guest_pins() -> tuple[Pin, ...]:
    """Return what JavaScript's guest is made of. Python's is made by an installed package."""
    return load_pins(Path(guest.sources(), guest.PINS)).pins


def _tool_pins() -> tuple[Pin, ...]:
    """Return what a checkout's tools download. Its linter of workflows would fetch it again."""
    path = tool_pins()
    return () if path is None else load_pins(path).pins


def prune(
    context: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Remove what pins name, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove inputs that no pin names, and what interrupted runs left."""
    used: tuple[Pin, ...] = ()
    if not everything:
        used = (*load_definitions(recipe_folder(context)).pins.pins, *_guest_pins(), *_tool_pins())
    dropped = Cache().prune({pin.sha256 for pin in used}, dry_run=dry_run)
    for entry in dropped:
        out().print(f"{entry.sha256}  {human_size(entry.size)}", markup=False)
    verb = "Would remove" if dry_run else "Removed"
    total = sum(entry.size for entry in dropped)
    out().print(f"{verb} {counted(len(dropped), 'file')}, {human_size(total)}.")
