"""`reproduce`: builds a bundle again from its provenance, and compares the two."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ..sources import parse_sources
from . import options, packed, panels
from .definitions import load_definitions
from .output import Json, err, out, print_json
from .workshop import open_workshop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..recipes import Recipe
    from ..release.reproducing import Reproduction, Task

SCHEMA_VERSION = "capsule-build.reproduce.v1"
_SHOWN = 40
"""How many differing members people are told of; machines get all."""

Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle (.tar.gz).")]
Provenance = Annotated[
    Path | None,
    typer.Option("--provenance", metavar="FILE", help="Its provenance, where that isn't beside it."),
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="PATH", help="Keep the bundle that is built, there.")
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="NAME=PATH",
        help="The file that was your own in the first build. Can be repeated.",
    ),
]


def register(app: typer.Typer, recipes: Mapping[str, Recipe], folder: Path) -> None:
    """Add the command."""

    @app.command("reproduce", rich_help_panel=panels.RELEASE)
    def reproduce_bundle(
        bundle: Bundle,
        provenance: Provenance = None,
        output: Output = None,
        source: Sources = None,
        container_cli: str = options.ENGINE,
        as_json: Json = False,
    ) -> None:
        """Build a bundle again from its provenance, and say what differs. Exit code 1: something does."""
        from ..release.reproducing import plan_reproduction, reproduce
        from .progress import build_reporter

        packed.refuse_packed("reproduce", bundle)
        choice = options.engine_choice(container_cli, None)
        definitions = load_definitions(folder, *recipes.values())
        with _place(bundle, output) as place:
            task = plan_reproduction(
                bundle,
                recipes,
                definitions.pins,
                definitions.templates,
                output=place,
                sources=parse_sources(source or ()),
                provenance=provenance,
            )
            _say(task)
            with open_workshop(choice, definitions) as shop, build_reporter(err()) as report:
                result = reproduce(task, shop, report)
        if as_json:
            print_json(_json(task, result))
        else:
            _print(task, result)
        if result.comparison is not None:
            raise typer.Exit(1)


@contextlib.contextmanager
def _place(bundle: Path, output: Path | None) -> Iterator[Path]:
    if output is not None:
        yield output
        return
    with tempfile.TemporaryDirectory(prefix="capsule-reproduce-") as folder:
        yield Path(folder) / bundle.name


def _say(task: Task) -> None:
    for text in task.differences:
        err().print(f"[yellow]note:[/] not as it was then: {escape(text)}")
    if task.moved:
        err().print(
            f"[yellow]note:[/] not this checkout's pins any more, fetched by digest: "
            f"{escape(', '.join(task.moved))}"
        )


def _print(task: Task, result: Reproduction) -> None:
    console = functools.partial(out().print, markup=False)
    if result.comparison is None:
        console(f"{task.bundle} is reproduced: SHA-256 {result.sha256}.")
        return
    console(f"{task.bundle} is not reproduced.")
    console(f"  it has    SHA-256 {task.provenance.sha256}")
    console(f"  built was SHA-256 {result.sha256}")
    lines = result.comparison.lines()
    console(f"{len(result.comparison.members)} members differ:")
    for line in lines[:_SHOWN]:
        console(f"  {line}")
    if len(lines) > _SHOWN:
        console(f"  and {len(lines) - _SHOWN} more; --json lists all")
    if task.differences:
        console(f"Not as it was then: {'; '.join(task.differences)}.")


def _json(task: Task, result: Reproduction) -> dict[str, Any]:
    comparison = result.comparison
    return {
        "schema_version": SCHEMA_VERSION,
        "bundle": str(task.bundle),
        "reproduced": comparison is None,
        "sha256": task.provenance.sha256,
        "built_sha256": result.sha256,
        "not_as_then": list(task.differences),
        "moved_pins": list(task.moved),
        "same_order": comparison is None or comparison.same_order,
        "members": [
            {
                "name": item.name,
                "differs": list(item.aspects),
                "first": list(item.first),
                "second": list(item.second),
            }
            for item in (comparison.members if comparison else ())
        ],
    }
