"""Pieces of code and sessions side by side: ours, and those of capsule-run's own adapter for programs.

Each side is one program that does what it is told by a line, and says how long that took: both run in turn.
"""

from __future__ import annotations

import io
import json
import statistics
from typing import TYPE_CHECKING, cast

from capsule_build.runtime.process import converse

from . import sides
from .figures import Figure
from .sides import ADAPTER, OURS, VERSION, new_folder, run_in, variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .bench import Bench

_LATER_RUNS = 100
_PROGRAM = """
import asyncio, json, sys, time
from {package} import Session, run_javascript, run_python

CODE = {{
    "python": "print('Hello')\\nx = 5 + 3\\nx * 2\\n",
    "javascript": "console.log('Hello');\\nconst x = 5 + 3;\\nx * 2;\\n",
}}
RUN = {{"python": run_python, "javascript": run_javascript}}

async def main():
    sessions = {{language: Session(language) for language in CODE}}
    for session in sessions.values():
        await session.__aenter__()
    for line in sys.stdin:
        what, language = line.split()
        began = time.perf_counter()
        if what == "code":
            said = await RUN[language](CODE[language])
        else:
            said = await sessions[language].run("x = 0" if what == "begin" else "x += 1; x")
        print(json.dumps([time.perf_counter() - began, said]), flush=True)
    for session in sessions.values():
        await session.__aexit__(None, None, None)

asyncio.run(main())
"""


class _Side:
    """One of the two programs."""

    def __init__(self, python: Path, package: str, folder: Path) -> None:
        code = _PROGRAM.format(package=package)
        self._talk = converse([str(python), "-c", code], cwd=str(folder), env=variables(python))
        self._output = io.BufferedReader(cast("io.RawIOBase", self._talk.output))

    def code(self, language: str) -> float:
        """Return how long a piece of code takes, in seconds."""
        taken, said = self._told("code", language)
        # Theirs doesn't always have the value of the last line of JavaScript.
        assert said.startswith("Hello"), said
        return taken

    def begin(self, language: str) -> None:
        """Give the session of a language its variable."""
        self._told("begin", language)

    def session(self, language: str) -> float:
        """Return how long one more run of a session takes, in seconds."""
        taken, said = self._told("session", language)
        assert int(said) > 0, said
        return taken

    def end(self) -> None:
        self._talk.process.kill()
        self._talk.close()
        self._output.close()

    def _told(self, what: str, language: str) -> tuple[float, str]:
        self._talk.send(f"{what} {language}\n".encode())
        taken, said = json.loads(self._output.readline())
        return taken, said


def measure(bench: Bench) -> list[Figure]:
    """The first piece of code of a program, later ones, and runs of a session."""
    theirs = sides.adapter(bench)
    name = f"capsule-run-adapter {ADAPTER}, capsule-run {VERSION}"
    # Once on a machine, and not what is compared.
    run_in(bench.folder, OURS, "doctor")
    both = [
        _Side(OURS.with_name("python"), "capsule", new_folder(bench, "sessions-ours")),
        _Side(theirs.with_name("python"), "capsule_adapter", new_folder(bench, "sessions-theirs")),
    ]
    figures = []
    try:
        for language, promised in (("python", 1), ("javascript", None)):
            first = [side.code(language) for side in both]
            later = _medians(both, language, _Side.code)
            figures += [
                Figure(f"run_{language}: the first", first[0], name, first[1], "s", at_most=0.02),
                Figure(f"run_{language}: a later one", later[0], name, later[1], "ms", at_most=promised),
            ]
        for side in both:
            side.begin("python")
        runs = _medians(both, "python", _Side.session)
        # Its sessions in JavaScript don't find the file of their state, also in its own examples.
        both[0].begin("javascript")
        (ours,) = _medians(both[:1], "javascript", _Side.session)
    finally:
        for side in both:
            side.end()
    return [
        *figures,
        Figure("session in Python: a run", runs[0], name, runs[1], "ms", at_most=1),
        Figure("session in JavaScript: a run", ours, f"{name}, in Python", runs[1], "ms"),
    ]


def _medians(
    programs: Sequence[_Side], language: str, measured: Callable[[_Side, str], float]
) -> list[float]:
    """Return how long each side takes, in ms; they take turns."""
    taken: list[list[float]] = [[] for _ in programs]
    for _ in range(_LATER_RUNS):
        for side, times in zip(programs, taken, strict=True):
            times.append(measured(side, language))
    return [statistics.median(times) * 1000 for times in taken]
