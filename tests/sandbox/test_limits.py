"""What docs/limits.md has: bounds that no other test reaches, most of them lowered here, and what costs what."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule import Session, SessionError
from capsule_build.runtime.process import run
from capsule_build.sandbox import artifact, fetching, instance, jsontext, machine, source, trees
from capsule_build.sandbox.javascript import bundling
from capsule_build.sandbox.sessions import call, python

from .javascript import script
from .tasks import HEAD, error_of

if TYPE_CHECKING:
    from .tasks import Bench, Web

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
COSTS = {
    "a task that does nothing": ("return None", "return null"),
    "a million turns of a loop that adds": (
        "t = 0\nfor n in range(1_000_000): t += n",
        "let t = 0; for (let n = 0; n < 1e6; n++) t += n;",
    ),
    "100,000 calls of a small function": (
        "def f(n): return n + 1\nt = 0\nfor n in range(100_000): t = f(t)",
        "const f = (n) => n + 1; let t = 0; for (let n = 0; n < 1e5; n++) t = f(t);",
    ),
    "sorting 100,000 random numbers": (
        "import random\nx = [random.random() for _ in range(100_000)]\nx.sort()",
        "const x = Array.from({ length: 1e5 }, () => Math.random()); x.sort((a, b) => a - b);",
    ),
    "40,000 objects to JSON and back (1 MB)": (
        "import json\nx = [{'a': n, 'b': str(n)} for n in range(40_000)]\njson.loads(json.dumps(x))",
        "const x = Array.from({ length: 40000 }, (_, n) => ({ a: n, b: String(n) })); JSON.parse(JSON.stringify(x));",
    ),
    "200,000 matches of a regular expression in 1 MB": (
        "import re\nre.findall('[a-z]+[0-9]', 'abc1 ' * 200_000)",
        "'abc1 '.repeat(200000).match(/[a-z]+[0-9]/g);",
    ),
    "SHA-256 of 1 MB": ("import hashlib\nhashlib.sha256(bytes(1 << 20)).digest()", None),
}


@pytest.mark.parametrize("what", COSTS)
def test_what_costs_what(bench: Bench, what: str) -> None:
    """The page has these figures: they are the guests', and not a machine's."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {what} |")]
    figures = [float(cell.replace(",", "")) for cell in line.split("|")[2:4] if cell.strip()]
    python, javascript = COSTS[what]
    envelopes = [bench.task(python, options="compute='HIGH'")]
    if javascript is not None:
        envelopes.append(script(bench, javascript, options='compute: "HIGH"'))
    measured = [envelope["execution"]["fuel_consumed"] / 1e6 for envelope in envelopes]
    assert measured == pytest.approx(figures, rel=0.1)


def test_a_result_has_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a file's syntax says is an answer, too, and smaller than this.
    monkeypatch.setattr(instance, "MAX_ANSWER_BYTES", 20_000)
    for envelope in (bench.task("return 'x' * 20_000"), script(bench, "return 'x'.repeat(20_000)")):
        kind, message = error_of(envelope)
        assert kind == "wasm_error"
        assert "The task's result has more than 20000 bytes." in message
    assert bench.task("return 'x' * 19_000")["success"]


def test_values_of_a_result_and_of_a_request_have_a_bound(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsontext, "MAX_VALUES", 1000)
    why = "more than 1000 values can't be passed on"
    advice = "Return it as one text, which may be JSON."
    for body, code in (
        ("return [[] for _ in range({})]", "return Array.from({{ length: {} }}, () => [])"),
        (
            "return [{{'a': n}} for n in range({})]",
            "return Array.from({{ length: {} }}, (_, a) => ({{ a }}))",
        ),
    ):
        for number, fits in ((499, True), (501, False)):
            for envelope in (bench.task(body.format(number)), script(bench, code.format(number))):
                if fits:
                    assert len(envelope["result"]) == number
                else:
                    told = f"The task's result is too much: {why}. {advice}"
                    assert error_of(envelope) == ("task_error", told)
    assert bench.task("return '[,{\"' * 5000")["result"] == '[,{"' * 5000
    bench.write(
        "file.py",
        f"{HEAD}@task()\ndef nested(numbers, more): return numbers * more\n"
        "@task(name='main')\ndef main(size, more):\n"
        "    try: return nested([0] * size, more)['result']\n"
        "    except ValueError as error: return str(error)\n",
    )
    assert bench.run("file.py", 900, 1)["result"] == [0] * 900
    assert bench.run("file.py", 1100, 1)["result"] == why
    # What a nested task gives is its own result, and its caller goes on.
    assert bench.run("file.py", 900, 2)["result"] is None


def test_a_result_that_is_too_deep_is_told_as_that(bench: Bench) -> None:
    code = "let a = []; for (let n = 0; n < {}; n++) a = [a]; return a"
    told = "lists and objects so deep in each other can't be passed on. Return it as one text, which may be JSON."
    for depth in (500, 1000, 5000):
        envelope = script(bench, code.format(depth), options='compute: "HIGH"')
        if depth == 500 or envelope["success"]:
            # How deep is too deep is the host's own Python's.
            assert str(envelope["result"]) == "[" * (depth + 1) + "]" * (depth + 1)
        else:
            assert error_of(envelope) == ("task_error", f"The task's result is too much: {told}")


def test_what_a_guest_asks_of_the_host_has_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by the arguments of a nested task."""
    monkeypatch.setattr(machine, "MAX_REQUEST_BYTES", 10_000)
    bench.write(
        "file.py",
        f"{HEAD}@task()\ndef nested(text): return len(text)\n"
        "@task(name='main')\ndef main(size): return nested('x' * size)['result']\n",
    )
    assert bench.run("file.py", 9000)["result"] == 9000
    assert error_of(bench.run("file.py", 10_000)) == (
        "wasm_error",
        "The interpreter of the task stopped: A request has more than 10000 bytes.",
    )


def test_a_file_of_tasks_has_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("file.py", "def main(): return 1\n" + "#" * source.MAX_SOURCE_BYTES)
    assert f"file.py can't be read: it has more than {source.MAX_SOURCE_BYTES} bytes" in bench.refused(
        "file.py"
    )
    monkeypatch.setattr(bundling, "MAX_BUNDLE_BYTES", 1000)
    assert "have more than 1000 bytes" in bench.refused(
        bench.write("file.mjs", f"export const main = () => '{'x' * 1000}';\n").name
    )


def test_reading_a_file_is_bounded_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens in an instance of its own, whose limits aren't the file's."""
    monkeypatch.setattr(source, "_READING_SECONDS", 0.0)
    bench.write("file.py", f"def main(): return {time.time_ns()}\n")
    assert "its syntax is too much to take apart (timeout" in bench.refused("file.py")


def test_a_module_has_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "MAX_FILE_BYTES", 1000)
    bench.write("helper.py", "x = 1\n" + "#" * 1000)
    bench.write("file.py", "import helper\ndef main(): return helper.x\n")
    said = bench.refused("file.py")
    assert "The import of helper can't be read: helper.py has more than 1000 bytes" in said


def test_a_packed_file_has_a_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("file.py", "def main(): return 1\n")
    assert bench.command("build", "file.py", "--export").code == 0
    assert bench.run("file.wasm")["result"] == 1
    monkeypatch.setattr(artifact, "MAX_UNPACKED_BYTES", 100)
    assert "has more than 100 bytes unpacked" in bench.refused("file.wasm")
    monkeypatch.setattr(artifact, "MAX_ARTIFACT_BYTES", 100)
    assert "file.wasm can't be read: it has more than 100 bytes" in bench.refused("file.wasm")


def test_a_body_has_a_bound(bench: Bench, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_REQUEST_BYTES", 3000)
    body = f"from capsule import http\nreturn http.post('{web.url}/x', body=b'x' * args[0]).status_code"
    options = "allowed_hosts=['127.0.0.1']"
    assert bench.task(body, 3000, options=options)["result"] == 200
    kind, message = error_of(bench.task(body, 3010, options=options))
    assert kind == "task_error"
    assert "a body may have 3000 bytes" in message


def test_a_process_abandons_only_so_many(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "MAX_ABANDONED", 1)
    # Its syntax is read, which takes an instance, too.
    assert bench.task("return 1")["result"] == 1
    waits = "import capsule_asyncio\ncapsule_asyncio._sleep(2)"
    assert error_of(bench.task(waits, options="timeout='50ms'"))[0] == "timeout"
    assert error_of(bench.task("return 1")) == (
        "wasm_error",
        "1 tasks of this process still wait in calls of the system, past their time.",
    )
    end = time.monotonic() + 20
    while instance.abandoned():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert bench.task("return 1")["result"] == 1


def test_a_line_to_a_worker_has_a_bound(bench: Bench) -> None:
    """It isn't kept, whatever its length; what follows it is answered."""
    bench.write("file.py", "def main(): return 1\n")
    program = (
        "from capsule_build.sandbox.worker import pool, protocol\n"
        "protocol.MAX_LINE_BYTES = 1000\n"
        "pool.Pool(1).serve()\n"
    )
    lines = b'{"id": 1, "file": "' + b"x" * (3 << 20) + b'"}\n{"id": 2, "file": "file.py"}\n'
    result = run([sys.executable, "-P", "-c", program], stdin=lines, cwd=bench.folder, timeout=60)
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {"id": None, "error": "A request has more than 1000 bytes."}
    assert (second["id"], second["output"]["result"]) == (2, 1)


def test_what_a_run_of_a_session_prints_and_leaves_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        async with Session() as session:
            monkeypatch.setattr(call, "MAX_PRINTED_BYTES", 100)
            printed = await session.run("print('a' * 150)\n'b' * 118")
            assert (
                printed
                == f"{'a' * 100}\n(51 more bytes were left out.)\n'{'b' * 99}\n(20 more characters were left out.)"
            )
            await session.run("x = 'kept'")
            monkeypatch.setattr(python, "MAX_STATE_CHARACTERS", 1000)
            with pytest.raises(SessionError, match="leaves has more than 1000 characters") as caught:
                await session.run("x = 'y' * 1000")
            assert caught.value.error_type == "memory_exceeded"
            assert await session.run("x") == "'kept'"

    asyncio.run(use())
