"""`capsule-build pins`: the exact inputs of builds; newer ones; a mirror of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from ..fetch import Cache, fetch_all
from ..fetch.mirror import export as export_files
from ..fetch.mirror import prepare_export
from ..fetch.update import changes, named, update, write_pins
from ..resources import recipes_dir
from . import panels
from .definitions import load_definitions
from .grammar import App
from .output import Json, err, human_size, out, print_json, print_table
from .progress import build_reporter

if TYPE_CHECKING:
    from ..fetch.update import Change
    from ..pins import Pin

PINS_FILE: Final = "pins.lock.json"
SCHEMA: Final = "capsule-build.pins-list.v1"

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="[COMPONENT]...", help="Only these components.", show_default=False),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Made if it is missing.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    group = App(no_args_is_help=True, help="Show, renew or export the pinned inputs of builds.")
    group.command("list")(list_pins)
    group.command("update")(update_pins)
    group.command("export")(export)
    app.add_typer(group, name="pins", rich_help_panel=panels.INPUTS)


def recipe_folder(context: typer.Context) -> Path:
    """Return the folder of recipes that the application was given with `--recipes`, else the project's."""
    return context.find_root().params.get("recipes") or recipes_dir()


def list_pins(
    context: typer.Context,
    components: Names = None,
    *,
    as_json: Json = False,
) -> None:
    """List the pinned inputs."""
    pinset = load_definitions(recipe_folder(context)).pins
    pins = named(pinset, components or ())
    if as_json:
        listed = [{**asdict(pin), "reference": pin.reference} for pin in pins]
        print_json({"schema_version": SCHEMA, "epoch": pinset.epoch, "pins": listed})
        return
    print_table(
        ("component", "target", "version", "package", "size", "sha256", "licence"),
        [
            (
                pin.component,
                pin.target,
                pin.version,
                f"{pin.kind}:{pin.package}",
                _size(pin),
                pin.sha256[:16],
                pin.license,
            )
            for pin in pins
        ],
        dispensable=("licence", "package", "sha256", "size"),
    )


def update_pins(
    context: typer.Context,
    components: Names = None,
    *,
    write: Annotated[bool, typer.Option("--write", help="Write the pins, not only the difference.")] = False,
) -> None:
    """Look for newer inputs within what components.toml tracks, and show what would change."""
    folder = recipe_folder(context)
    definitions = load_definitions(folder)
    err().print("Asking the origins ...")
    new = update(definitions.components, definitions.pins, components or (), cache=Cache())
    found = changes(definitions.pins, new)
    for change in found:
        _print_change(change)
    if not found:
        out().print("All pins are current.")
    elif write:
        write_pins(folder / PINS_FILE, new)
        out().print(f"{counted(len(found), 'pin')} changed; written to {folder / PINS_FILE}.", markup=False)
    else:
        out().print(f"{counted(len(found), 'pin')} would change; --write writes them.")


def export(
    context: typer.Context,
    folder: Folder,
    components: Names = None,
) -> None:
    """Lay the pinned inputs out by digest, for CAPSULE_SOURCE_MIRROR on another machine."""
    definitions = load_definitions(recipe_folder(context))
    pins = named(definitions.pins, components or ())
    prepare_export(folder)
    with build_reporter(err()) as progress:
        fetched = fetch_all(pins, cache=Cache(), components=definitions.components, progress=progress)
    size = export_files(((pin, got.path) for pin, got in fetched.items()), folder)
    out().print(f"{counted(len(fetched), 'pin')}, {human_size(size)}, in {folder}", markup=False)


def counted(number: int, noun: str) -> str:
    """Return `1 file` or `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_change(change: Change) -> None:
    console, label = out(), escape(change.label)
    if change.old is None and change.new is not None:
        console.print(f"[green]+ {label}[/]  {escape(change.new.version)}  {change.new.sha256[:16]}")
    elif change.new is None:
        console.print(f"[red]- {label}[/]")
    elif change.old is not None:
        old, new = change.old, change.new
        console.print(f"[bold]~ {label}[/]")
        for name, before in asdict(old).items():
            after = getattr(new, name)
            if before != after:
                console.print(f"    {name}: {before} -> {after}", markup=False)
        if change.suspicious:
            console.print(
                "    [bold red]Other bytes under the same name: find out why before you write this.[/]"
            )


def _size(pin: Pin) -> str:
    return "?" if pin.size is None else human_size(pin.size)
