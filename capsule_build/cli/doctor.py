"""`capsule-build doctor`: what works on this machine, and what to do about what doesn't."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer
from rich.markup import escape

from ..doctor import Diagnosis, examine
from ..fetch.cache import Cache
from ..resources import default_dist
from ..runtime.errors import EngineError
from . import panels
from .output import Json, out, print_json

if TYPE_CHECKING:
    from ..doctor import Check

SCHEMA: Final = "capsule-build.doctor.v1"
_MARKS: Final = {"ok": "[green]ok  [/]", "warn": "[yellow]warn[/]", "fail": "[red]fail[/]"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor", rich_help_panel=panels.MACHINE)(doctor)


def doctor(*, as_json: Json = False) -> None:
    """Say what works on this machine, and what to do about what doesn't. Exit code 4: no usable engine."""
    diagnosis = examine(cache=Cache().root, dist=default_dist())
    if as_json:
        print_json(as_document(diagnosis))
    else:
        for check in diagnosis.checks:
            _print(check)
    if not diagnosis.usable:
        raise typer.Exit(EngineError.exit_code)


def as_document(diagnosis: Diagnosis) -> dict[str, object]:
    """Return what `--json` prints."""
    return {
        "schema_version": SCHEMA,
        "usable": diagnosis.usable,
        "checks": [
            {"name": check.name, "status": check.status, "found": check.found, "advice": check.advice}
            for check in diagnosis.checks
        ],
    }


def _print(check: Check) -> None:
    console = out()
    console.print(f"{_MARKS[check.status]}  [bold]{escape(check.name)}[/]: {escape(check.found)}")
    for line in (check.advice or "").splitlines():
        console.print(f"        {escape(line)}")
