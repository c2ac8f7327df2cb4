"""`capsule-build check` and `capsule-build inspect`: what a bundle is, for people and for machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from ..inspection import describe, inspect_bundle
from ..runtime.archive import check_bundle
from .output import human_size, out, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..runtime.archive import BundleInfo

CHECK_SCHEMA: Final = "capsule-build.check.v1"

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
        print_json({"schema_version": CHECK_SCHEMA, "ok": True, **describe(info)})
        return
    out().print(f"[green]ok[/green] {escape(str(bundle))} keeps the bundle contract.")
    _print_facts(info)


def inspect(bundle: BundleArgument, *, as_json: JsonOption = False) -> None:
    """Show what is in a bundle: components, sizes, and what its ELF files ask for."""
    inspection = inspect_bundle(bundle)
    if as_json:
        print_json(inspection.to_json())
        return
    _print_facts(inspection.info)
    out().print()
    print_table(
        ("component", "version", "licence"),
        [(part.name, part.version, ", ".join(part.licenses)) for part in inspection.components],
    )
    out().print()
    print_table(
        ("folder", "files", "size"),
        [
            (area.name, f"{area.files}", human_size(area.size))
            for area in sorted(inspection.areas, key=lambda area: (-area.size, area.name))
        ],
    )
    out().print()
    print_table(
        ("ELF file", "ABI", "machine", "oldest versions needed"),
        [
            (file.name, file.abi.value, file.elf.machine, _versions(file.requires))
            for file in inspection.elves
        ],
    )
    for name, reason in sorted(inspection.unreadable.items()):
        out().print(f"[yellow]broken[/yellow] {escape(name)}: {escape(reason)}")
    out().print(
        f"\nNewest library versions that its programs ask for: {_versions(inspection.requires)}. "
        "The capsule has these libraries itself: an image needs none of them."
    )


def _print_facts(info: BundleInfo) -> None:
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
        ("size", f"{human_size(info.size)} packed, {human_size(info.unpacked_bytes)} unpacked"),
        ("members", f"{info.members}"),
    ):
        table.add_row(name, escape(value))
    out().print(table)


def _versions(requires: Mapping[str, str]) -> str:
    return ", ".join(f"{family} {number}" for family, number in requires.items()) or "none"
