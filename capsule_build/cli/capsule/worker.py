"""`capsule worker`: stay, and run tasks for a program."""

from __future__ import annotations

from typing import Annotated

import typer

from .panels import TASKS


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("worker", rich_help_panel=TASKS)(worker)


def worker(
    *,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, max=1000, help="How many tasks may run at once; default: 16 or more."),
    ] = None,
) -> None:
    """Run tasks for a program: JSON lines in and out, until the input ends. See docs/worker.md."""
    from ...sandbox.worker.pool import Pool

    Pool(jobs).serve()
