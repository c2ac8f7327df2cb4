"""What all commands print alike: tables for people, JSON for machines, errors."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from .. import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..runtime.errors import CapsuleError


Json = Annotated[bool, typer.Option("--json", help="Print JSON with a schema_version.")]

_NO_COLUMNS = 200
"""Columns to use where the environment says that there are none."""

_GAP = "  "


_CONTROLS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # what moves the cursor or sets colours (ECMA-48: CSI)
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\Z)"  # what sets the window's title or the clipboard (OSC and others)
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u202a-\u202e\u2066-\u2069]",  # what turns the direction of writing
    re.DOTALL,
)


class _Console(Console):
    """Prints what strangers wrote (a container's programs, names of files) without what a terminal obeys."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as `Console.print` does, texts without control characters."""
        super().print(*(harmless(item) if isinstance(item, str) else item for item in objects), **options)


def harmless(text: str) -> str:
    """Return a text without control sequences and characters, other than line ends and tabs."""
    return _CONTROLS.sub("", text)


def out() -> Console:
    """Return the console of results: standard output. Rich respects NO_COLOR and knows terminals."""
    return _Console(width=_width(), soft_wrap=True, highlight=False)


def err() -> Console:
    """Return the console of everything that isn't a result (standard error)."""
    return _Console(stderr=True, width=_width(), soft_wrap=True, highlight=False)


def _width() -> int | None:
    """Return the columns to use where the environment's are none at all; else `None`: Rich finds out."""
    return _NO_COLUMNS if os.environ.get("COLUMNS", "1").strip() in {"", "0"} else None


def print_json(value: Any) -> None:
    """Print a value for machines: stable keys, one final newline."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True) + "\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, dispensable: Sequence[str] = ()
) -> None:
    """Print a table for people: as wide as the terminal; elsewhere one whole line a row, for `grep`.

    Args:
        columns: Their names.
        rows: A cell for each column.
        dispensable: Columns that a terminal which is too narrow for all goes without, the first one first.
    """
    console = out()
    if not console.is_terminal:
        for line in _lines([columns, *rows]):
            console.print(line, markup=False)
        return
    kept, cells = fitting(columns, rows, console.width, dispensable)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in kept:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(escape(harmless(cell)) for cell in row))
    console.print(table)


def print_entries(
    columns: Sequence[str],
    entries: Iterable[tuple[Sequence[str], str]],
    *,
    dispensable: Sequence[str] = (),
) -> None:
    """Print a table for a terminal whose rows are never folded, each with what is said of it below.

    Args:
        columns: Their names. One without any cell is left out.
        entries: The cells of a row, and a text, which may be empty.
        dispensable: As for `print_table`.
    """
    console, told = out(), list(entries)
    rows = [row for row, _ in told]
    empty = [name for name, *cells in zip(columns, *rows, strict=True) if rows and not any(cells)]
    kept, cells = fitting(columns, rows, console.width, dispensable, without=empty)
    head, *lines = _lines([kept, *cells])
    console.print(f"[bold]{escape(head)}[/]")
    for line, (_, text) in zip(lines, told, strict=True):
        console.print(line, markup=False)
        if text:
            console.print(Padding(escape(harmless(text)), (0, 0, 0, 4)), soft_wrap=False)


def fitting(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    dispensable: Sequence[str],
    *,
    without: Iterable[str] = (),
) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a table, and the cells below them, that a width has room for.

    Args:
        columns: Their names.
        rows: A cell for each column.
        width: In columns of characters.
        dispensable: Which columns go, one after the other, until it fits; the others stay whatever it is.
        without: Which columns go in any case.
    """
    gone = set(without)
    table = [list(columns), *map(list, rows)]
    widths = {
        name: max(cell_len(line) for cell in cells for line in cell.splitlines() or [""])
        for name, *cells in ((column[0], *column) for column in zip(*table, strict=True))
    }
    for name in dispensable:
        kept = [each for column, each in widths.items() if column not in gone]
        if sum(kept) + len(_GAP) * (len(kept) - 1) <= width:
            break
        gone.add(name)
    head, *cells = (
        [cell for name, cell in zip(columns, row, strict=True) if name not in gone] for row in table
    )
    return head, cells


def _lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield rows with their cells below each other."""
    cells = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield _GAP.join(padded).rstrip()


def print_facts(facts: Iterable[tuple[str, str]], *, indent: str = "") -> None:
    """Print what is known of one thing: a name and a value a line, however long the value is.

    A value with several lines is put below itself.
    """
    console = out()
    known = list(facts)
    width = max((cell_len(name) for name, _ in known), default=0)
    for name, value in known:
        first, *more = value.splitlines() or [""]
        gap = " " * (width - cell_len(name)) + _GAP if first else ""
        console.print(f"{indent}[bold]{escape(name)}[/]{gap}{escape(first)}")
        for line in more:
            console.print(f"{indent}{' ' * width}{_GAP}{line}", markup=False)


def print_error(error: CapsuleError) -> None:
    """Print what was wrong, where, and what to do next."""
    console = err()
    console.print(f"[bold red]error:[/] {escape(error.message)}")
    if error.hint:
        console.print(escape(error.hint))
    for note in getattr(error, "__notes__", ()):
        console.print(escape(note))


def version_option(program: str) -> Any:
    """Return the option `--version` of a command line."""

    def show(asked: bool) -> None:
        if asked:
            sys.stdout.write(f"{program} {__version__}\n")
            raise typer.Exit

    return typer.Option("--version", "-V", help="Print the version and exit.", is_eager=True, callback=show)


def human_size(size: int, *, step: int = 1000) -> str:
    """Return a number of bytes as people read it: `52.4 MB`.

    Args:
        size: The number.
        step: How many of a unit the next one is: 1000 for files, 1024 for memory, as a task's `ram` has it.
    """
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < step:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= step
    return f"{value:.1f} GB"
