"""Task capsules against `capsule-run` 0.8.10, from its package, in a virtual environment of its own."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

from capsule_build.runtime.process import Result, run

from . import sides
from .figures import Figure, alternate
from .sides import HELLO, OURS, VERSION, new_folder, run_in

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import Bench

_WARM_PER_RUN = 10
_COLD_RUNS = 2
_LOOP = """from capsule import task

@task(name="main", compute="HIGH")
def main() -> int:
    total = 0
    for number in range(1_000_000):
        total += number
    return total
"""


def measure(bench: Bench) -> list[Figure]:
    """A new file, a warm command, a loop, and what each takes of memory; the two programs in turn."""
    theirs = sides.theirs(bench)
    name = f"capsule-run {VERSION}"
    ours_at, theirs_at = new_folder(bench, "tasks-ours"), new_folder(bench, "tasks-theirs")
    # Once on a machine, and not what is compared.
    run_in(ours_at, OURS, "doctor")
    (theirs_at / "first.py").write_text(HELLO)
    run_in(theirs_at, theirs, "run", "first.py")

    cold: dict[Path, list[float]] = {OURS: [], theirs: []}
    for turn in range(_COLD_RUNS):
        for program, folder in ((OURS, ours_at), (theirs, theirs_at)):
            (folder / f"cold{turn}.py").write_text(f"# {turn}\n{HELLO}")
            cold[program].append(_seconds(program, folder, f"cold{turn}.py"))
    ours_cold, theirs_cold = statistics.median(cold[OURS]), statistics.median(cold[theirs])

    warm = alternate(
        bench.runs * _WARM_PER_RUN,
        lambda: run_in(ours_at, OURS, "run", "cold0.py"),
        lambda: run_in(theirs_at, theirs, "run", "cold0.py"),
    )
    for folder in (ours_at, theirs_at):
        (folder / "loop.py").write_text(_LOOP)
    loops: dict[Path, list[int]] = {OURS: [], theirs: []}
    for _ in range(bench.runs + 1):
        for program, folder in ((OURS, ours_at), (theirs, theirs_at)):
            loops[program].append(
                _envelope(run_in(folder, program, "run", "--json", "loop.py"))["duration_ms"]
            )
    loop = {program: statistics.median(taken[1:]) for program, taken in loops.items()}
    small = [
        _envelope(run_in(folder, program, "run", "--json", "cold0.py"))["ram_used"] / 1e6
        for program, folder in ((OURS, ours_at), (theirs, theirs_at))
    ]
    return [
        Figure("task: a new file", ours_cold, name, theirs_cold, "s", at_most=0.01),
        Figure("task: a warm command", warm[0] * 1000, name, warm[1] * 1000, "ms", at_most=3),
        Figure("task: a loop of a million", loop[OURS], name, loop[theirs], "ms", at_most=1.5),
        Figure("task: memory of the command", _peak(OURS, ours_at), name, _peak(theirs, theirs_at), "MB"),
        Figure("task: the smallest instance", small[0], name, small[1], "MB"),
    ]


def _seconds(program: Path, folder: Path, file: str) -> float:
    """Return how long one run of a file takes: what is new is so only once."""
    began = time.perf_counter()
    run_in(folder, program, "run", file)
    return time.perf_counter() - began


def _envelope(result: Result) -> dict[str, int]:
    execution: dict[str, int] = json.loads(result.stdout.splitlines()[-1])["execution"]
    return execution


def _peak(program: Path, folder: Path) -> float:
    """Return the most memory that a warm command has, in MB, as the kernel counts it for a child."""
    code = (
        "import os, resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    said = run([sys.executable, "-c", code, str(program), "run", "cold0.py"], cwd=folder)
    return int(said.stdout) * 1024 / 1e6
