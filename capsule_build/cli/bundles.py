"""`capsule-build check` and `capsule-build inspect`: what a bundle is, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..inspection import describe, inspect_bundle
from ..runtime.archive import check_bundle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..inspection import Inspection
    from ..runtime.archive import BundleInfo

CHECK_SCHEMA: Final = "capsule-build.check.v1"

_PIPED_WIDTH: Final = 200
"""Columns of a table that goes to a file or a pipe: wide enough that `grep` finds whole lines."""

_UNITS: Final = ("kB", "MB", "GB")

BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle (.tar.gz).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON with a schema_version.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("check")(check)
    app.command("inspect")(inspect)


def check(bundle: BundleArgument, *, as_json: JsonOption = False) -> None:
    """Check a bundle's whole contract, with the code that the runtime uses."""
    info = check_bundle(bundle)
    if as_json:
        _print_json({"schema_version": CHECK_SCHEMA, "ok": True, **describe(info)})
        return
    console = _console()
    console.print(f"[green]ok[/green] {escape(str(bundle))} keeps the bundle contract.")
    console.print(_facts(info))


def inspect(bundle: BundleArgument, *, as_json: JsonOption = False) -> None:
    """Show what is in a bundle: components, sizes, and what its ELF files ask for."""
    inspection = inspect_bundle(bundle)
    if as_json:
        _print_json(inspection.to_json())
        return
    console = _console()
    console.print(_facts(inspection.info))
    for table in (_components(inspection), _areas(inspection), _elves(inspection)):
        console.print(table)
    for name, reason in sorted(inspection.unreadable.items()):
        console.print(f"[yellow]broken[/yellow] {escape(name)}: {escape(reason)}")
    console.print(f"Oldest library versions that all of it works with: {_versions(inspection.requires)}")


def _console() -> Console:
    """Return a console that colours only a terminal, and none where NO_COLOR is set."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console


def _print_json(document: Mapping[str, object]) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def _facts(info: BundleInfo) -> Table:
    manifest = info.manifest
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in (
        ("runtime", f"{manifest.runtime_id} {manifest.runtime_version}"),
        ("platform", str(manifest.platform)),
        ("install root", manifest.install_root),
        ("tools", ", ".join(sorted(manifest.tools))),
        ("sha256", info.sha256),
        ("size", f"{_size(info.size)} packed, {_size(info.unpacked_bytes)} unpacked"),
        ("members", f"{info.members}"),
    ):
        table.add_row(name, escape(value))
    return table


def _components(inspection: Inspection) -> Table:
    table = _titled("Components", "component", "version", "licence")
    for part in inspection.components:
        table.add_row(*map(escape, (part.name, part.version, ", ".join(part.licenses))))
    return table


def _areas(inspection: Inspection) -> Table:
    table = _titled("Sizes", "folder")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    for area in sorted(inspection.areas, key=lambda area: (-area.size, area.name)):
        table.add_row(escape(area.name), f"{area.files}", _size(area.size))
    return table


def _elves(inspection: Inspection) -> Table:
    table = _titled("ELF files", "file", "ABI", "machine", "oldest versions needed")
    for file in inspection.elves:
        table.add_row(escape(file.name), file.abi.value, file.elf.machine, _versions(file.requires))
    return table


def _titled(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _versions(requires: Mapping[str, str]) -> str:
    return escape(", ".join(f"{family} {number}" for family, number in requires.items())) or "none"


def _size(size: int) -> str:
    """Return a size as people read it, in powers of 1000."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for unit in _UNITS:
        value /= 1000
        if value < 999.95 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"
