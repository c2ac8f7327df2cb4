"""`capsule doctor`: whether capsules can be installed from here, and tasks run; gets the sandbox ready."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads it)
from typing import Annotated

import typer
from rich.markup import escape

from ...runtime import health
from ...sandbox.health import examine, make_and_compare
from ..output import Json, err, out, print_json
from .panels import MACHINE
from .targets import DataDir, LockOption, lock_path, open_store

_MARKS = {"ok": "[green]ok  [/]", "warn": "[yellow]warn[/]", "fail": "[red]fail[/]"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor", rich_help_panel=MACHINE)(doctor)


def doctor(
    *,
    lock: LockOption = None,
    data_dir: DataDir = None,
    as_json: Json = False,
    guests: Annotated[
        Path | None,
        typer.Option(
            "--make-guests",
            metavar="FOLDER",
            help="Also make what tasks run in, for Python and JavaScript, from its sources into FOLDER, and "
            "compare the digests with the recorded ones.",
        ),
    ] = None,
) -> None:
    """Say what works on this machine. The first time this prepares the sandbox, and says each step of it."""
    checks = health.examine(lock_path(lock), open_store(data_dir))
    checks += examine(lambda text: err().print(text, markup=False))
    if guests is not None:
        checks += make_and_compare(guests)
    if as_json:
        rows = [check._asdict() for check in checks]
        print_json({"schema_version": "capsule.doctor.v1", "checks": rows})
    else:
        for check in checks:
            out().print(f"{_MARKS[check.status]}  [bold]{check.name}[/]: {escape(check.found)}")
            for line in (check.advice or "").splitlines():
                out().print(f"        {escape(line)}")
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)
