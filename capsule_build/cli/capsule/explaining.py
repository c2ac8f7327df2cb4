"""`capsule why`: why a program can't start in an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...runtime.why import explain
from ..output import Json, out, print_json
from .panels import CAPSULES
from .targets import User, Where, opened

if TYPE_CHECKING:
    from ...runtime.why import Explanation

SCHEMA: Final = "capsule.why.v1"

Program = Annotated[str, typer.Argument(metavar="PATH", help="The program's absolute path in ENV.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("why", rich_help_panel=CAPSULES)(why)


def why(path: Program, env: Where, *, user: User = None, as_json: Json = False) -> None:
    """Explain why a program can't start there, and what sealing did to it. Exit code 1: it can't."""
    found = explain(path, opened(env, user))
    if as_json:
        print_json({"schema_version": SCHEMA, "starts": not found.problems, **found.as_json()})
    else:
        _print(found)
    if found.problems:
        raise typer.Exit(1)


def _print(found: Explanation) -> None:
    console = out()

    def line(text: str) -> None:
        console.print(text, markup=False)

    if found.problems:
        line(f"{found.path} can't start in {found.environment}:")
        for problem in found.problems:
            line(f"  - {problem.message}")
            if problem.hint:
                line(f"    {problem.hint}")
    else:
        line(f"Nothing was found that keeps {found.path} from starting in {found.environment}.")
    if len(found.chain) > 1:
        line("What is started:")
        for path, because in found.chain:
            line(f"  {path}  ({because})")
    if found.libraries:
        line("Its libraries:")
        for path, how in found.libraries:
            line(f"  {path}  ({how})")
    if found.sealing is not None:
        line(f"Sealing: {found.sealing.message}")
    for note in found.notes:
        line(f"note: {note}")
    for step in found.next_steps:
        line(f"Next: {step}")
