"""`capsule-build diff`: what changed between two bundles, for people and for machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import packed
from .output import Json, human_size, out, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..comparison import Change, Comparison

Before = Annotated[Path, typer.Argument(metavar="A", help="A bundle (.tar.gz).")]
After = Annotated[Path, typer.Argument(metavar="B", help="Another one.")]
FilesOption = Annotated[bool, typer.Option("--files", help="List every file that differs.")]


def diff(before: Before, after: After, *, files: FilesOption = False, as_json: Json = False) -> None:
    """Show what changed from one bundle to another: components, licences, sizes, files."""
    from ..comparison import compare_bundles

    packed.refuse_packed("diff", before, after)
    found = compare_bundles(before, after)
    if as_json:
        print_json(found.to_json())
        return
    if found.same:
        out().print(f"The same bytes: sha256 {found.before.info.sha256}.")
        return
    _print_facts(found)
    rows = [(part.name, "", part.version) for part in found.added]
    rows += [(part.name, part.version, "") for part in found.removed]
    rows += _rows(found.versions)
    _print(("component", "before", "after"), sorted(rows), "No component differs.")
    _print(("licence of", "before", "after"), _rows(found.licences), "No licence differs.")
    _print_sizes(found)
    if files:
        _print_files(found)


def _print_facts(found: Comparison) -> None:
    old, new = found.before.info, found.after.info
    rows = [
        ("runtime", *(f"{i.manifest.runtime_id} {i.manifest.runtime_version}" for i in (old, new))),
        ("platform", str(old.manifest.platform), str(new.manifest.platform)),
        ("sha256", old.sha256, new.sha256),
        ("packed", human_size(old.size), human_size(new.size)),
        ("unpacked", human_size(old.unpacked_bytes), human_size(new.unpacked_bytes)),
    ]
    print_table(("", "before", "after"), [row for row in rows if row[1] != row[2]])


def _print_sizes(found: Comparison) -> None:
    before, after = found.before.areas, found.after.areas
    rows = [
        (name, human_size(before.get(name, 0)), human_size(after.get(name, 0)), _signed(change))
        for name in sorted(before | after)
        if (change := after.get(name, 0) - before.get(name, 0))
    ]
    _print(("folder", "before", "after", "change"), rows, "No folder's size differs.")
    out().print(
        f"\nFiles: {len(found.files_added)} added, {len(found.files_removed)} removed, "
        f"{len(found.files_changed)} changed."
    )


def _print_files(found: Comparison) -> None:
    rows = [(entry.name, "added", human_size(entry.size)) for entry in found.files_added]
    rows += [(entry.name, "removed", human_size(entry.size)) for entry in found.files_removed]
    rows += [
        (
            old.name,
            f"other {', '.join(old.differences(new))}",
            f"{human_size(old.size)} -> {human_size(new.size)}",
        )
        for old, new in found.files_changed
    ]
    _print(("file", "what", "size"), sorted(rows), "No file differs.")


def _print(columns: Sequence[str], rows: Sequence[Sequence[str]], otherwise: str) -> None:
    out().print()
    if rows:
        print_table(columns, rows)
    else:
        out().print(otherwise)


def _rows(changes: Sequence[Change]) -> list[tuple[str, str, str]]:
    return [(item.name, ", ".join(item.before), ", ".join(item.after)) for item in changes]


def _signed(change: int) -> str:
    return f"{'+' if change > 0 else '-'}{human_size(abs(change))}"
