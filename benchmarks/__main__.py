"""`python -m benchmarks [NAME...]`: runs benchmarks and prints what they found."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import benchmarks
from capsule_build.cli.output import err, print_table
from capsule_build.fetch import default_root
from capsule_build.runtime.errors import CapsuleError
from capsule_build.runtime.files import write_atomically

from .bench import Bench
from .figures import COLUMNS, Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCHEMA_VERSION = "capsule-build.benchmarks.v1"
DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BAR = r"\|"
MARK = "<!-- figures: written by python -m benchmarks --write -->"


def main() -> int:
    """Run what the command line names; the exit status is 1 when a promise isn't kept."""
    known = _known()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=benchmarks.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--runs", type=int, default=5, help="runs of each side of a figure (default: 5)")
    parser.add_argument("--container-cli", choices=("docker", "podman"), help="the engine")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help=f"write them into {DOCUMENT.name} as well")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in known]
    if unknown or asked.runs < 1:
        parser.error(f"unknown: {', '.join(unknown)}" if unknown else "--runs is at least 1")
    figures: list[Figure] = []
    console = err()
    # Beside the inputs: what is rendered links to them.
    default_root().mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmarks-", dir=default_root()))
        bench = Bench(Path(folder), asked.runs, asked.container_cli, console.print, stack)
        for name in asked.names or known:
            console.print(f"[bold]{name}[/]")
            measured = known[name](bench)
            figures += measured
            if asked.write:
                _write([figure.row() for figure in measured])
    if asked.json:
        document = {"schema_version": SCHEMA_VERSION, "figures": [figure.to_json() for figure in figures]}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        print_table(COLUMNS, [figure.row() for figure in figures])
    return 1 if any(figure.holds is False for figure in figures) else 0


def _known() -> dict[str, Callable[[Bench], list[Figure]]]:
    """Return the benchmarks by name: the modules of this package that have a function `measure`."""
    modules = (
        importlib.import_module(f"benchmarks.{item.name}")
        for item in pkgutil.iter_modules(benchmarks.__path__)
        if item.name != "__main__"
    )
    return {
        module.__name__.rpartition(".")[2]: module.measure for module in modules if hasattr(module, "measure")
    }


def _write(rows: Sequence[Sequence[str]]) -> None:
    """Put rows into the document's table, in the places of those of the same figures."""
    before, mark, after = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise CapsuleError(f"{DOCUMENT} has no line '{MARK}' that says where figures go.")
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Linux {platform.release().partition('-')[0]}"
    text = f"{before}{mark}\n\nOn a machine with {machine}:\n\n{merged(after, rows)}"
    write_atomically(DOCUMENT, text.encode())


def merged(text: str, rows: Sequence[Sequence[str]]) -> str:
    """Return the table in a text with new rows, each in the place of the last one of its figure."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    kept = [line for line in text.splitlines() if line.startswith("| ") and line not in lines]
    table = {line.split(" | ")[0]: line for line in kept}
    table.update({line.split(" | ")[0]: line for line in map(_line, rows)})
    return "".join(f"{line}\n" for line in [*lines, *table.values()])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CapsuleError as error:
        sys.exit(f"error: {error}")
