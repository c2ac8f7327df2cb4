"""Task capsules against `capsule-run` 0.8.10, from its package, in a virtual environment of its own."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.process import Result, run

from .figures import Figure, alternate

if TYPE_CHECKING:
    from .bench import Bench

VERSION = "0.8.10"

_OURS = Path(sys.executable).with_name("capsule")
# A user has its modules compiled, as pip leaves them.
_NOT_A_USERS = ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
_WARM_PER_RUN = 10
_COLD_RUNS = 2
_HELLO = """from capsule import task

@task(name="main", compute="LOW", ram="64MB")
def main() -> str:
    return "Hello from Capsule!"
"""
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
    theirs = _install(bench)
    name = f"capsule-run {VERSION}"
    ours_at, theirs_at = _folder(bench, "ours"), _folder(bench, "theirs")
    # Once on a machine, and not what is compared.
    _run(_OURS, ours_at, "doctor")
    _write(theirs_at, "first.py", _HELLO)
    _run(theirs, theirs_at, "run", "first.py")

    cold: dict[Path, list[float]] = {_OURS: [], theirs: []}
    for turn in range(_COLD_RUNS):
        for program, folder in ((_OURS, ours_at), (theirs, theirs_at)):
            _write(folder, f"cold{turn}.py", f"# {turn}\n{_HELLO}")
            cold[program].append(_seconds(program, folder, f"cold{turn}.py"))
    ours_cold, theirs_cold = statistics.median(cold[_OURS]), statistics.median(cold[theirs])

    warm = alternate(
        bench.runs * _WARM_PER_RUN,
        lambda: _run(_OURS, ours_at, "run", "cold0.py"),
        lambda: _run(theirs, theirs_at, "run", "cold0.py"),
    )
    for folder in (ours_at, theirs_at):
        _write(folder, "loop.py", _LOOP)
    loops: dict[Path, list[int]] = {_OURS: [], theirs: []}
    for _ in range(bench.runs + 1):
        for program, folder in ((_OURS, ours_at), (theirs, theirs_at)):
            loops[program].append(_envelope(_run(program, folder, "run", "--json", "loop.py"))["duration_ms"])
    loop = {program: statistics.median(taken[1:]) for program, taken in loops.items()}
    small = [
        _envelope(_run(program, folder, "run", "--json", "cold0.py"))["ram_used"] / 1e6
        for program, folder in ((_OURS, ours_at), (theirs, theirs_at))
    ]
    return [
        Figure("task: a new file", ours_cold, name, theirs_cold, "s", at_most=0.01),
        Figure("task: a warm command", warm[0] * 1000, name, warm[1] * 1000, "ms", at_most=3),
        Figure("task: a loop of a million", loop[_OURS], name, loop[theirs], "ms", at_most=1.5),
        Figure("task: memory of the command", _peak(_OURS, ours_at), name, _peak(theirs, theirs_at), "MB"),
        Figure("task: the smallest instance", small[0], name, small[1], "MB"),
    ]


def _seconds(program: Path, folder: Path, file: str) -> float:
    """Return how long one run of a file takes: what is new is so only once."""
    began = time.perf_counter()
    _run(program, folder, "run", file)
    return time.perf_counter() - began


def _install(bench: Bench) -> Path:
    environment = bench.folder / "capsule-run"
    run([sys.executable, "-m", "venv", str(environment)])
    run([str(environment / "bin" / "pip"), "install", "-q", f"capsule-run=={VERSION}"], timeout=600)
    return environment / "bin" / "capsule"


def _folder(bench: Bench, name: str) -> Path:
    folder = bench.folder / f"tasks-{name}"
    folder.mkdir()
    return folder


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


def _run(program: Path, folder: Path, *words: str) -> Result:
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_A_USERS}
    return run([str(program), *words], cwd=folder, env={**environment, "PATH": path}, timeout=600)


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
