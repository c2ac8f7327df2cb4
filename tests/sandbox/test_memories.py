"""Tasks of one process, whose instances have the same memory one after another: none finds what another left."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from capsule import Session
from capsule_build.runtime.process import run
from capsule_build.sandbox.instance import Instance, Outcome, abandoned
from capsule_build.sandbox.machine import START_BYTES
from capsule_build.sandbox.memory import Memory

from .javascript import script
from .tasks import HEAD, error_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .tasks import Bench

SECRET = "QWZ!9f3xSECRET"
LEAVING = {
    "many small texts": f"x = ['{SECRET}' * n for n in range(300)]",
    "one that is large": f"x = '{SECRET}' * 500_000",
    "what was freed": f"for n in range(50): x = '{SECRET}' * 1000 * n; del x",
    "a memory that has grown": f"x = [('{SECRET}' * 100_000).encode() for _ in range(20)]",
    "a file": "with open('data/file', 'rb') as file: x = bytearray(5_000_000); file.readinto(x)",
    "what was printed": f"print('{SECRET}' * 5000)",
    "an argument": "x = args[0] * 2",
    "an error": f"raise ValueError('{SECRET}' * 500)",
    "a stack": f"def f(n, s): return f(n + 1, s + '{SECRET}')\nf(0, '')",
    "no fuel": f"x = []\nwhile True: x.append('{SECRET}' + str(len(x)))",
    "no memory": f"x = []\nwhile True: x.append('{SECRET}' * 10_000 + str(len(x)))",
    "an end": f"import os\nx = '{SECRET}' * 1000\nos._exit(1)",
}
OPTIONS = "compute=100_000_000, ram='100MB', allowed_files=['data']"

# CPython trusts its code: a constant's number that lies outside of the code's constants makes an object of any
# bytes, here of such that say that they are a bytearray with all of the memory for its content.
SEARCH = """
import struct, types
def words(*numbers): return struct.pack(f"<{len(numbers)}I", *numbers)
forged = words(1000, id(bytearray), args[0], args[0] + 1, 16, 16, 0)
holder = words(id(forged) + 16)
constants = (None,)
number = (id(holder) - id(constants)) // 4 & 0x3FFFFFFF
EXTENDED, LOAD_CONST, RESUME, RETURN = 69, 82, 128, 35
code = [RESUME, 0, EXTENDED, number >> 24, EXTENDED, number >> 16 & 255, EXTENDED, number >> 8 & 255]
code += [LOAD_CONST, number & 255, RETURN, 0]
def f(): return None
whole = types.FunctionType(f.__code__.replace(co_code=bytes(code), co_consts=constants), {})()
assert len(whole) == args[0]
wanted = bytes(255 - byte for byte in args[1])
found = []
at = whole.find(wanted)
while at >= 0:
    found.append(at)
    at = whole.find(wanted, at + 1)
return found
"""
UNLIKE_IT = [255 - byte for byte in SECRET.encode()]


@pytest.fixture
def renewed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How large the memories were that were made as new. Each is compared with what it begins with."""
    sizes: list[int] = []
    wrong: list[int] = []
    renew = Memory.renew

    def compared(memory: Memory) -> bool:
        size, kept = memory.size, renew(memory)
        if kept:
            sizes.append(size)
            fewer = memory.size
            memory.grow(size)
            if not _is_as_new(memory):
                wrong.append(memory.address)
            # Nobody else has it yet.
            _protect(memory.address + fewer, size - fewer, 0)
            memory.size = fewer
        return kept

    monkeypatch.setattr(Memory, "renew", compared)
    yield sizes
    assert not wrong


def _is_as_new(memory: Memory) -> bool:
    image = memory._image
    length = 0 if image is None else image.length
    if image is not None and ctypes.string_at(memory.address, length) != ctypes.string_at(
        image.address, length
    ):
        return False
    behind = memory.size - length
    return ctypes.string_at(memory.address + length, behind) == bytes(behind)


def test_a_task_finds_nothing_of_an_earlier_one_in_all_of_its_memory(
    bench: Bench, renewed: list[int]
) -> None:
    (bench.folder / "data").mkdir()
    (bench.folder / "data" / "file").write_bytes(SECRET.encode() * 300_000)
    # Some tables of its memory are looked up by what they have.
    size = START_BYTES - 64
    before = bench.task(SEARCH, size, UNLIKE_IT)["result"]
    assert len(before) < 3
    for what, body in LEAVING.items():
        bench.task(body, SECRET * 1000, options=OPTIONS)
        assert bench.task(SEARCH, size, UNLIKE_IT)["result"] == before, what
    # It would find it.
    assert len(bench.task(f"x = '{SECRET}' * 9\n{SEARCH}", size, UNLIKE_IT)["result"]) > 9
    assert len(renewed) > len(LEAVING)


def test_memories_of_javascript_are_as_new_however_a_task_ends(bench: Bench, renewed: list[int]) -> None:
    for body, options in (
        (f"return '{SECRET}'.repeat(50_000);", ""),
        (f"throw new Error('{SECRET}'.repeat(50_000));", ""),
        (f"const f = (s) => f(s + '{SECRET}'); f('');", ""),
        (f"const x = []; for (;;) x.push('{SECRET}' + x.length);", "compute: 20_000_000"),
        ("const x = new Uint8Array(9 << 20); x.fill(7);", ""),
        ("for (;;);", 'timeout: "50ms"'),
    ):
        script(bench, body, options=options)
    assert len(renewed) > 6
    assert max(renewed) > 9 << 20


def test_the_memory_of_a_task_that_was_given_up_stays_its_own(bench: Bench, renewed: list[int]) -> None:
    (bench.folder / "data").mkdir()
    pipe = bench.folder / "data" / "pipe"
    os.mkfifo(pipe)
    body = f"x = '{SECRET}' * 10_000\nopen('data/pipe', 'rb').read()\nreturn x"
    before = abandoned()
    assert error_of(bench.task(body, options="timeout='100ms', allowed_files=['data:ro']"))[0] == "timeout"
    assert abandoned() == before + 1
    for number in range(4):
        assert bench.task("return [args[0]] * 9", number)["result"] == [number] * 9
    with pipe.open("wb") as stream:
        stream.write(SECRET.encode() * 100)
    give_up = time.monotonic() + 10
    while abandoned() > before and time.monotonic() < give_up:
        time.sleep(0.01)
    assert abandoned() == before
    assert bench.task("return 5")["result"] == 5


def test_tasks_at_the_same_time_and_within_each_other(bench: Bench, renewed: list[int]) -> None:
    bench.write(
        "file.py",
        f"{HEAD}@task\ndef deep(n): return n if n == 0 else deep(n - 1)['result'] + 1\n"
        "@task(name='main')\ndef main(n, way):\n"
        "    x = [n] * 50_000\n"
        "    if way == 0: raise ValueError(n)\n"
        "    if way == 1: return deep(5)['result'] + n - 5\n"
        "    if way == 2: x = bytes([n % 256]) * 4_000_000\n"
        "    return x[-1] - n % 256 + n if way == 2 else x[-1]\n",
    )
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(8):
            envelope = bench.run("file.py", number * 100 + turn, (number + turn) % 4)
            if envelope["result"] != number * 100 + turn and (number + turn) % 4:
                wrong.append(envelope)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert renewed


def test_nothing_holds_what_a_task_was_given_when_it_has_ended(bench: Bench) -> None:
    """An instance is let go of by the next collection of garbage: what it was told would be memory until then."""
    gc.collect()
    gc.disable()
    try:
        session = Session()
        asyncio.run(session.run("x = bytearray(1 << 20)"))
        asyncio.run(session.run("x[0] = 1"))
        session.close()
        bench.task("return args[0]", "x" * (1 << 20))
        ended = [one for one in gc.get_objects() if isinstance(one, Instance)]
        held = [value for one in ended for value in vars(one).values()]
    finally:
        gc.enable()
    assert ended
    assert not [value for value in held if isinstance(value, (bytes, Outcome))]


def test_a_process_that_is_forked_while_tasks_run_can_run_others(bench: Bench) -> None:
    bench.write("file.py", f"{HEAD}@task(name='main', timeout='5s')\ndef main(n): return n\n")
    program = (
        "import asyncio, capsule, os, threading\n"
        "def once(): return asyncio.run(capsule.run(file='file.py', args=[7]))['result']\n"
        "def loop():\n"
        "    while not ended: once()\n"
        "ended = []\n"
        "threads = [threading.Thread(target=loop) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for _ in range(20):\n"
        "    once()\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(once() or 1)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=' ')\n"
        "ended.append(1)\n"
        "for thread in threads: thread.join()\n"
        "print(once())\n"
    )
    result = run([sys.executable, "-c", program], cwd=bench.folder, timeout=120)
    assert result.text.split() == ["7"] * 21


def test_a_program_that_closes_all_descriptors_gives_tasks_no_file_of_its_own(bench: Bench) -> None:
    """As one does that becomes a daemon, when it has run a task before."""
    (bench.folder / "private").write_bytes(SECRET.encode() * 3_000_000)
    # More than is kept for the next task, so each has a new memory.
    bench.write("file.py", "def main(): return len([bytes([n]) * 20_000_000 for n in range(3)])\n")
    program = (
        "import asyncio, capsule, os\n"
        "def once(): print(asyncio.run(capsule.run(file='file.py'))['result'])\n"
        "once()\n"
        "os.closerange(3, 100)\n"
        "for _ in range(10): os.open('private', os.O_RDONLY)\n"
        "for _ in range(3): once()\n"
    )
    result = run([sys.executable, "-c", program], cwd=bench.folder, timeout=60)
    assert result.text.split() == ["3"] * 4


_protect = ctypes.CDLL(None).mprotect
_protect.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
