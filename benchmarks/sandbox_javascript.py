"""Task capsules in JavaScript and TypeScript, against what was seen of `capsule-run` 0.8.10.

Its JavaScript package can't be had everywhere, so the figure of the other side is one that was seen, and not
measured here: 19.3 s for a file that is new to it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.process import Result, run

from .figures import Figure

if TYPE_CHECKING:
    from .bench import Bench

_PROGRAM = Path(sys.executable).with_name("capsule")
_AGAINST = "capsule-run 0.8.10, as seen"
_COLD_SECONDS = 19.3
_COLD_RUNS = 5
_WARM_RUNS = 20
# A user has its modules compiled, as pip leaves them.
_NOT_A_USERS = ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
_HELLO = """import { task } from "@capsule-run/sdk";

export const main = task({ name: "main", compute: "LOW", ram: "64MB" }, () => "Hello from Capsule! %d");
"""
_LOOP = """import { task } from "@capsule-run/sdk";

export const main = task({ name: "main", compute: "HIGH" }, (): number => {
  let total = 0;
  for (let number = 0; number < 1_000_000; number++) total += number;
  return total;
});
"""


def measure(bench: Bench) -> list[Figure]:
    """New files of both languages, a warm command; a loop of a million turns, against the same in Python."""
    folder = bench.folder / "javascript"
    folder.mkdir()
    # Once on a machine, and not what is compared.
    _write(folder, "first.ts", _HELLO % 0)
    _run(folder, "first.ts")
    cold = {
        suffix: statistics.median(_cold(folder, f"cold{turn}.{suffix}", turn) for turn in range(_COLD_RUNS))
        for suffix in ("js", "ts")
    }
    _write(folder, "loop.ts", _LOOP)
    _write(folder, "loop.py", "def main():\n    return sum(number for number in range(1_000_000))\n")
    _write(folder, "capsule.toml", "[tasks]\ndefault_compute = 'HIGH'\n")
    loop = {
        name: statistics.median(_inside(folder, name) for _ in range(3)) for name in ("loop.ts", "loop.py")
    }
    warm = {}
    _write(folder, "hello.py", "def main():\n    return 'Hello from Capsule!'\n")
    for name in ("cold0.ts", "hello.py"):
        _run(folder, name)
        warm[name] = statistics.median(_seconds(folder, name) for _ in range(_WARM_RUNS)) * 1000
    return [
        Figure("JavaScript task: a new file", cold["js"], _AGAINST, _COLD_SECONDS, "s", at_most=1 / 50),
        Figure("TypeScript task: a new file", cold["ts"], _AGAINST, _COLD_SECONDS, "s", at_most=1 / 50),
        Figure("TypeScript task: a warm command", warm["cold0.ts"], "a Python task", warm["hello.py"], "ms"),
        Figure("TypeScript task: a loop of a million", loop["loop.ts"], "in Python", loop["loop.py"], "ms"),
    ]


def _cold(folder: Path, name: str, turn: int) -> float:
    """Return how long a file that was never seen takes."""
    _write(folder, name, _HELLO % turn)
    return _seconds(folder, name)


def _seconds(folder: Path, name: str) -> float:
    began = time.perf_counter()
    _run(folder, name)
    return time.perf_counter() - began


def _inside(folder: Path, name: str) -> int:
    """Return how many milliseconds a task says that it took."""
    took: int = json.loads(_run(folder, name).stdout)["execution"]["duration_ms"]
    return took


def _write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)


def _run(folder: Path, name: str) -> Result:
    environment = {key: value for key, value in os.environ.items() if key not in _NOT_A_USERS}
    return run([str(_PROGRAM), "run", "--json", name], cwd=folder, env=environment, timeout=600)
