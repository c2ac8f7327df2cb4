"""What stays of tasks that are stopped where they were: in a program that goes on, and in what they used."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.process import run
from capsule_build.sandbox.options import COMPUTE

from .tasks import HEAD, error_of

if TYPE_CHECKING:
    from .tasks import Bench

# Waits in WASI itself, where Wasmtime can't end it.
RAW_SLEEP = "import capsule_asyncio; capsule_asyncio._sleep({seconds})"


def test_a_program_ends_though_its_tasks_still_wait(bench: Bench) -> None:
    bench.write("file.py", f"{HEAD}@task(name='main', timeout='100ms')\ndef main():\n    {_raw(30)}\n")
    bench.write("fine.py", "def main(): return 'fine'\n")
    program = (
        "import asyncio, capsule, threading\n"
        "for file in ('file.py', 'file.py', 'fine.py'):\n"
        "    envelope = asyncio.run(capsule.run(file=file))\n"
        "    print(envelope['result'] or envelope['error']['error_type'])\n"
        "print(threading.active_count())\n"
    )
    began = time.monotonic()
    result = run([sys.executable, "-c", program], cwd=bench.folder, timeout=60)
    assert result.text.split() == ["timeout", "timeout", "fine", "1"]
    assert result.stderr == b""
    assert time.monotonic() - began < 20


def test_a_task_that_is_given_up_does_nothing_more(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    source = f"{HEAD}@task(name='main', timeout='100ms', allowed_files=['data'])\ndef main():\n    {_raw(1)}\n    open('data/late', 'w')\n"
    bench.write("file.py", source)
    handles = 0
    for _ in range(2):
        assert error_of(bench.run("file.py"))[0] == "timeout"
        time.sleep(1.5)
        assert list((bench.folder / "data").iterdir()) == []
        before, handles = handles, len(list(Path("/proc/self/fd").iterdir()))
    assert handles == before


def test_a_pipe_that_nobody_opens_holds_up_the_task_alone(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    pipe = bench.folder / "data" / "pipe"
    os.mkfifo(pipe)
    began = time.monotonic()
    envelope = bench.task("open('data/pipe').read()", options="timeout='100ms', allowed_files=['data:ro']")
    assert error_of(envelope)[0] == "timeout"
    assert time.monotonic() - began < 1
    os.close(os.open(pipe, os.O_WRONLY))
    assert bench.task("return 1")["result"] == 1


def test_time_that_runs_out_is_paid_for_with_all_compute(bench: Bench) -> None:
    """How much an instance used that was stopped in a loop isn't known: so it can't be got for nothing."""
    bench.write(
        "file.py",
        f"{HEAD}@task(compute='HIGH', timeout='100ms')\ndef spin():\n    while True: pass\n"
        "@task(name='main', compute='HIGH')\ndef main():\n"
        "    return [spin()['error']['error_type'] for _ in range(3)]\n",
    )
    assert bench.run("file.py")["result"] == ["timeout"] * 3
    shared = bench.run("file.py", shared_compute=True)
    assert error_of(shared)[0] == "fuel_exhausted"
    assert shared["execution"]["fuel_consumed"] == COMPUTE["HIGH"]


def _raw(seconds: int) -> str:
    return RAW_SLEEP.format(seconds=seconds)
