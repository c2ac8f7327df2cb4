"""`capsule-build check`, `inspect` and `diff`: what bundles are, for people and for machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from ..runtime.archive import check_bundle
from ..runtime.errors import UsageError
from . import packed, panels
from .diff import diff
from .output import Json, human_size, out, print_facts, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..runtime.archive import BundleInfo
    from ..sbom.reading import Listed

CHECK_SCHEMA: Final = "capsule-build.check.v1"

_TEXTS_FOLDER: Final = "share/licenses"
_REMARKS: Final = {
    "spdx-list": "(the SPDX list's: it came without its own)",
    "incomplete": "(not all: MISSING.txt says which)",
}

BundleArgument = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="A bundle (.tar.gz), or packed tasks (.wasm).")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("check", rich_help_panel=panels.BUNDLES)(check)
    app.command("inspect", rich_help_panel=panels.BUNDLES)(inspect)
    app.command("diff", rich_help_panel=panels.BUNDLES)(diff)


def check(bundle: BundleArgument, *, as_json: Json = False) -> None:
    """Check a bundle's whole contract, or that packed tasks are whole, with the code that uses them."""
    from ..inspection import describe

    if packed.is_packed(bundle):
        tasks = packed.read(bundle)
        if as_json:
            packed.show_json(tasks)
            return
        out().print(f"[green]ok[/green] {escape(str(bundle))} is whole.")
        packed.show(tasks, files=False)
        return
    info = check_bundle(bundle)
    if as_json:
        print_json({"schema_version": CHECK_SCHEMA, "ok": True, **describe(info)})
        return
    out().print(f"[green]ok[/green] {escape(str(bundle))} keeps the bundle contract.")
    _print_facts(info)


def inspect(
    bundle: BundleArgument,
    *,
    licences: Annotated[
        bool,
        typer.Option("--licenses", help="Every component's licence, its texts, and where its source is."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what is in a bundle: components, sizes, and what its ELF files ask for. Of tasks: their grants."""
    from ..inspection import inspect_bundle

    if packed.is_packed(bundle):
        if licences:
            raise UsageError(
                f"--licenses is for runtime bundles, and {bundle} is a file of tasks.",
                hint=f"The SBOM beside it, {bundle.name}.cdx.json, has the licences of its packages.",
            )
        tasks = packed.read(bundle)
        if as_json:
            packed.show_json(tasks)
        else:
            packed.show(tasks, files=True)
        return
    if licences:
        _print_licences(bundle, as_json=as_json)
        return
    inspection = inspect_bundle(bundle)
    if as_json:
        print_json(inspection.to_json())
        return
    _print_facts(inspection.info)
    out().print()
    print_table(
        ("component", "version", "licence"),
        [
            (part.name, part.version, ", ".join(part.licenses))
            for part in inspection.components
            if not part.came_along
        ],
    )
    packages = sum(part.came_along for part in inspection.components)
    if packages:
        out().print(f"and {packages} packages that came inside them (--licenses lists all)")
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


def _print_licences(bundle: Path, *, as_json: bool) -> None:
    from ..licence_report import read_licences

    report = read_licences(bundle)
    if as_json:
        print_json(report.to_json())
        return
    out().print(f"Licence texts, below {_TEXTS_FOLDER}, and where the source is, as package URLs:\n")
    for part in report.components:
        title = f"{part.name} {part.version}".rstrip()
        out().print(f"[bold]{escape(title)}[/]  {escape(', '.join(part.licenses))}")
        facts = (("texts", _texts(part)), ("source", "\n".join(part.sources)))
        print_facts([fact for fact in facts if fact[1]], indent="  ")


def _texts(part: Listed) -> str:
    texts = [text.removeprefix(f"{_TEXTS_FOLDER}/") for text in part.texts]
    return "\n".join([*texts, *([_REMARKS[part.remark]] if part.remark in _REMARKS else [])])


def _print_facts(info: BundleInfo) -> None:
    manifest = info.manifest
    print_facts(
        (
            ("runtime", f"{manifest.runtime_id} {manifest.runtime_version}"),
            ("platform", str(manifest.platform)),
            ("install root", manifest.install_root),
            ("tools", ", ".join(sorted(manifest.tools))),
            ("sha256", info.sha256),
            ("size", f"{human_size(info.size)} packed, {human_size(info.unpacked_bytes)} unpacked"),
            ("members", f"{info.members}"),
        )
    )


def _versions(requires: Mapping[str, str]) -> str:
    return ", ".join(f"{family} {number}" for family, number in requires.items()) or "none"
