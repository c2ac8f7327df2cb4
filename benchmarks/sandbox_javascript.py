"""Task capsules in JavaScript and TypeScript, against what was seen of `capsule-run` 0.8.10.

Its JavaScript package can't be had everywhere, so the figure of the other side is one that was seen, and not
measured here: 19.3 s for a file that is new to it.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING

from .figures import Figure
from .sides import OURS, new_folder, run_in

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.runtime.process import Result

    from .bench import Bench

_AGAINST = "capsule-run 0.8.10, as seen"
_COLD_SECONDS = 19.3
_COLD_RUNS = 5
_WARM_RUNS = 20
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
    folder = new_folder(bench, "javascript")
    # Once on a machine, and not what is compared.
    (folder / "first.ts").write_text(_HELLO % 0)
    _run(folder, "first.ts")
    cold = {
        suffix: statistics.median(_cold(folder, f"cold{turn}.{suffix}", turn) for turn in range(_COLD_RUNS))
        for suffix in ("js", "ts")
    }
    (folder / "loop.ts").write_text(_LOOP)
    (folder / "loop.py").write_text("def main():\n    return sum(number for number in range(1_000_000))\n")
    (folder / "capsule.toml").write_text("[tasks]\ndefault_compute = 'HIGH'\n")
    loop = {
        name: statistics.median(_inside(folder, name) for _ in range(3)) for name in ("loop.ts", "loop.py")
    }
    warm = {}
    (folder / "hello.py").write_text("def main():\n    return 'Hello from Capsule!'\n")
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
    (folder / name).write_text(_HELLO % turn)
    return _seconds(folder, name)


def _seconds(folder: Path, name: str) -> float:
    began = time.perf_counter()
    _run(folder, name)
    return time.perf_counter() - began


def _inside(folder: Path, name: str) -> int:
    """Return how many milliseconds a task says that it took."""
    took: int = json.loads(_run(folder, name).stdout)["execution"]["duration_ms"]
    return took


def _run(folder: Path, name: str) -> Result:
    return run_in(folder, OURS, "run", "--json", name)
