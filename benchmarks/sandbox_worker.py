"""Workers side by side: `capsule worker`, and that of `capsule-run` 0.8.10 from its package."""

from __future__ import annotations

import io
import json
import statistics
import threading
import time
from typing import TYPE_CHECKING, cast

from capsule_build.runtime.process import converse

from . import sides
from .figures import Figure
from .sides import HELLO, OURS, VERSION, new_folder, run_in, variables

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import Bench

_CALLS = 100
_AT_ONCE = 200


class _Worker:
    """A worker that was started, and has run its file once."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._talk = converse([str(program), "worker"], cwd=str(folder), env=variables(program))
        self._output = io.BufferedReader(cast("io.RawIOBase", self._talk.output))
        self._file = str(folder / "hello.py")
        self.at_once(_AT_ONCE)

    def call(self) -> float:
        """Return how long one call takes, in seconds."""
        began = time.perf_counter()
        self._talk.send(self._line("one"))
        self._check(self._output.readline())
        return time.perf_counter() - began

    def at_once(self, number: int) -> float:
        """Return how long it takes until many requests, written at once, are all answered, in seconds."""
        asked = b"".join(self._line(str(identity)) for identity in range(number))
        began = time.perf_counter()
        writer = threading.Thread(target=self._talk.send, args=(asked,))
        writer.start()
        answers = {self._check(self._output.readline()) for _ in range(number)}
        taken = time.perf_counter() - began
        writer.join()
        assert answers == {str(identity) for identity in range(number)}
        return taken

    def end(self) -> None:
        self._talk.process.kill()
        self._talk.close()
        self._output.close()

    def _line(self, identity: str) -> bytes:
        return json.dumps({"id": identity, "file": self._file, "args": [], "mounts": []}).encode() + b"\n"

    def _check(self, line: bytes) -> str:
        answer = json.loads(line)
        assert answer["output"]["result"] == "Hello from Capsule!", line
        identity: str = answer["id"]
        return identity


def measure(bench: Bench) -> list[Figure]:
    """One call, and 200 at once; the two workers in turn."""
    theirs = sides.theirs(bench)
    name = f"capsule-run {VERSION}"
    folders = {OURS: new_folder(bench, "worker-ours"), theirs: new_folder(bench, "worker-theirs")}
    for program, folder in folders.items():
        (folder / "hello.py").write_text(HELLO)
        run_in(folder, program, "run", "hello.py")
    workers = [_Worker(program, folder) for program, folder in folders.items()]
    try:
        calls: list[list[float]] = [[], []]
        many: list[list[float]] = [[], []]
        for _ in range(_CALLS):
            for worker, taken in zip(workers, calls, strict=True):
                taken.append(worker.call())
        for _ in range(bench.runs):
            for worker, taken in zip(workers, many, strict=True):
                taken.append(worker.at_once(_AT_ONCE))
    finally:
        for worker in workers:
            worker.end()
    call, at_once = ([statistics.median(taken) * 1000 for taken in pair] for pair in (calls, many))
    return [
        Figure("worker: a call", call[0], name, call[1], "ms", at_most=1),
        Figure(f"worker: {_AT_ONCE} at once", at_once[0], name, at_once[1], "ms", at_most=1),
    ]
