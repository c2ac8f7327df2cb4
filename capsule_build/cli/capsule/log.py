"""`capsule log`: what became of the tasks that were traced."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ...sandbox import trace
from ..output import human_size, out, print_entries, print_json, print_table
from .panels import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEMA_VERSION: Final = "capsule.log.v1"
_COLUMNS: Final = (
    "id",
    "parent",
    "started",
    "task",
    "version",
    "state",
    "ms",
    "retries",
    "fuel",
    "memory",
    "requests",
    "error",
)
_DISPENSABLE: Final = ("version", "requests", "retries", "parent", "memory", "fuel", "ms", "id")
"""What a narrow terminal goes without: it still says which task ended how, and when."""

_LOOK_SECONDS: Final = 0.2


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("log", rich_help_panel=TASKS)(log)


def log(
    *,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only tasks that failed or were interrupted.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on, and tell of each task when it has ended.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many, the newest.")] = 50,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON with a schema_version; with --follow, an object a line."),
    ] = False,
) -> None:
    """List the tasks that were run with --trace in this folder."""
    everything = trace.read_rows(".")
    rows = [row for row in everything if not failed or row.state in trace.BAD][-limit:]
    if follow:
        _follow(rows, everything, failed=failed, as_json=as_json)
    elif as_json:
        print_json({"schema_version": SCHEMA_VERSION, "tasks": [row._asdict() for row in rows]})
    elif out().is_terminal:
        print_entries(_COLUMNS[:-1], [_short(row) for row in rows], dispensable=_DISPENSABLE)
    else:
        print_table(_COLUMNS, [_cells(row) for row in rows])


def _follow(
    rows: Sequence[trace.Row], everything: Sequence[trace.Row], *, failed: bool, as_json: bool
) -> None:
    for row in _ended(rows, everything):
        if failed and row.state not in trace.BAD:
            continue
        if as_json:
            line = json.dumps({"schema_version": SCHEMA_VERSION, **row._asdict()})
        else:
            named: dict[str, Any] = dict(zip(_COLUMNS, _cells(row), strict=True))
            line = "  ".join(f"{name} {cell}" for name, cell in named.items() if cell)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _ended(rows: Sequence[trace.Row], everything: Sequence[trace.Row]) -> Iterator[trace.Row]:
    """Yield rows of tasks that have ended: those of `rows`, and all that end after `everything` was read."""
    last = max((row.id for row in everything), default=0)
    waiting = {row.id for row in everything if row.state == trace.RUNNING}
    yield from (row for row in rows if row.state != trace.RUNNING)
    while True:
        for row in trace.read_rows(".", after=last, also=waiting):
            last = max(last, row.id)
            if row.state == trace.RUNNING:
                waiting.add(row.id)
            else:
                waiting.discard(row.id)
                yield row
        time.sleep(_LOOK_SECONDS)


def _short(row: trace.Row) -> tuple[list[str], str]:
    """Return a row as a person reads it at a terminal, where a zero says nothing, and its error."""
    *cells, error = _cells(row)
    named = dict(zip(_COLUMNS, cells, strict=False))
    for name in ("retries", "requests"):
        named[name] = "" if named[name] == "0" else named[name]
    named["fuel"] = _part(row.fuel_consumed, row.fuel_limit)
    named["memory"] = _memory(row.ram_used)
    return list(named.values()), error


def _memory(size: int | None) -> str:
    return "" if size is None else human_size(size, step=1024)


def _part(used: int | None, limit: int) -> str:
    if used is None:
        return ""
    percent = 100 * used / max(limit, 1)
    return "<1 %" if 0 < percent < 1 else f"{percent:.0f} %"


def _cells(row: trace.Row) -> list[str]:
    def shown(value: object) -> str:
        return "" if value is None else str(value)

    fuel = f"{shown(row.fuel_consumed)}/{row.fuel_limit}"
    memory = _memory(row.ram_used)
    if row.memory_limit is not None:
        memory += f"/{_memory(row.memory_limit)}"
    return [
        str(row.id),
        shown(row.parent),
        datetime.fromtimestamp(row.started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
        row.name,
        shown(row.version),
        row.state,
        shown(row.duration_ms),
        shown(row.retries),
        fuel,
        memory,
        "" if row.host_requests is None else str(len(row.host_requests)),
        "" if row.error_type is None else f"{row.error_type}: {row.error_message}",
    ]
