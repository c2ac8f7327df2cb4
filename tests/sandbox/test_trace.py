"""`.capsule/trace.db` and `capsule log`: what is written of tasks is what their envelopes say."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import capsule
from capsule_build.cli.capsule.app import run as run_command
from capsule_build.runtime.errors import CapsuleError
from capsule_build.runtime.process import converse
from capsule_build.sandbox.trace import Row, read_rows

from .tasks import CAPSULE, HEAD, last_line

if TYPE_CHECKING:
    from .tasks import Bench, Web

FAMILY = f"""{HEAD}
@task(compute=7_000_000, ram="48MB", timeout="20s")
def loop():
    while True: pass

@task(compute="LOW", max_retries=2)
def fails(a):
    raise ValueError("no " + a)

@task(compute="LOW", timeout="300ms")
def sleeps():
    import time
    time.sleep(5)

@task(name="main", compute="HIGH", allowed_hosts=["127.0.0.1"])
def main(url):
    from capsule import http
    http.get(url)
    return [loop(), fails("way"), sleeps()]
"""

FAILS = f"""{HEAD}
@task(compute="LOW", max_retries=1)
def fails():
    raise ValueError("no way " * 30)

@task(name="main", compute="HIGH")
def main():
    return [fails()]
"""


def said(row: Row) -> dict[str, Any]:
    """The part of an envelope that is in a row."""
    error = None
    if row.error_type is not None:
        error = {"error_type": row.error_type, "message": row.error_message}
    execution = {
        "task_name": row.name,
        "duration_ms": row.duration_ms,
        "retries": row.retries,
        "fuel_consumed": row.fuel_consumed,
        "ram_used": row.ram_used,
        "host_requests": row.host_requests,
    }
    return {"success": row.state == "completed", "error": error, "execution": execution}


def part(envelope: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in envelope.items() if key != "result"}


def test_rows_are_what_the_envelopes_say(bench: Bench, web: Web) -> None:
    bench.write("family.py", FAMILY)
    bench.write("capsule.toml", "[workflow]\nversion = '1.2'\n")
    envelope = bench.run("family.py", web.url, trace=True)
    assert envelope["success"], envelope
    rows = read_rows(str(bench.folder))
    assert [said(row) for row in rows] == [part(item) for item in (envelope, *envelope["result"])]
    assert [row.error_type for row in rows] == [None, "fuel_exhausted", "task_error", "timeout"]
    assert [row.parent for row in rows] == [None, 1, 1, 1]
    assert [row.fuel_limit for row in rows] == [50_000_000_000, 7_000_000, 100_000_000, 100_000_000]
    assert [row.memory_limit for row in rows] == [None, 48 << 20, None, None]
    assert {(row.version, row.file) for row in rows} == {("1.2", "family.py")}
    assert all(row.ended_ms is not None and row.ended_ms >= row.started_ms for row in rows)
    assert rows[2].retries == 2
    assert rows[0].host_requests == envelope["execution"]["host_requests"]
    # What isn't asked for isn't written.
    bench.run("family.py", web.url)
    assert len(read_rows(str(bench.folder))) == 4


def test_memory_is_told_in_the_units_of_the_option(bench: Bench) -> None:
    bench.write("file.py", f"{HEAD}@task(name='main', ram='64MB')\ndef main(): pass\n")
    assert bench.command("run", "--trace", "file.py").code == 0
    used = read_rows(str(bench.folder))[0].ram_used
    assert used is not None
    assert f"{used / (1 << 20):.1f} MB/64.0 MB" in bench.command("log").stdout.decode()


def test_a_message_or_a_name_that_is_no_unicode_is_written_too(bench: Bench) -> None:
    """A task that fails like that would else be missing, and take its process along."""
    name = "od\udcffd.py"
    bench.write(name, "def main(): raise ValueError(chr(0xd800))\n")
    for worker in (False, True):
        run = capsule.run(file=name, cwd=str(bench.folder), trace=True, worker=worker)
        message = asyncio.run(run)["error"]["message"]
        assert "ValueError: \ud800" in message
    for row in read_rows(str(bench.folder)):
        assert (row.state, row.file) == ("failed", "od\\udcffd.py")
        assert row.error_message == f"ValueError: \\ud800 ({ascii(name)[1:-1]}, line 1)"
    assert len(read_rows(str(bench.folder))) == 2


def test_a_task_that_never_began_has_used_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_T_A", "\udcff")
    options = f'name="main", compute={2**63 - 1}, max_retries=2, env_variables=["CAPSULE_T_A"]'
    bench.write("t.py", f"{HEAD}\n@task({options})\ndef main(): return 1\n")
    envelope = asyncio.run(capsule.run(file="t.py", cwd=str(bench.folder), trace=True))
    assert "aren't UTF-8" in envelope["error"]["message"]
    assert (envelope["execution"]["retries"], envelope["execution"]["fuel_consumed"]) == (2, 0)
    assert [row.fuel_consumed for row in read_rows(str(bench.folder))] == [0]


def test_a_project_can_ask_for_it_for_commands_workers_and_programs(bench: Bench) -> None:
    bench.write("file.py", "def main(n):\n    if n == '1': raise ValueError(n)\n    return n\n")
    bench.write("capsule.toml", "[trace]\nenabled = true\n")
    first = last_line(bench.command("run", "file.py", "0"))

    async def use() -> list[dict[str, Any]]:
        folder = str(bench.folder)
        calls = [capsule.run("file.py", [str(n)], cwd=folder, worker=True) for n in range(1, 5)]
        return list(await asyncio.gather(*calls))

    envelopes = [first, *asyncio.run(use())]
    rows = read_rows(str(bench.folder))
    assert len(rows) == 5
    for envelope in envelopes:
        assert part(envelope) in [said(row) for row in rows]
    told = json.loads(bench.command("log", "--json").stdout)
    assert told["schema_version"] == "capsule.log.v1"
    assert [Row(**item) for item in told["tasks"]] == rows
    failed = json.loads(bench.command("log", "--json", "--failed").stdout)["tasks"]
    assert [item["error_message"] for item in failed] == ["ValueError: 1 (file.py, line 2)"]
    table = bench.command("log", "--limit", "2").stdout.decode().splitlines()
    assert table[0].split()[:4] == ["id", "parent", "started", "task"]
    assert [line.split()[0] for line in table[1:]] == ["4", "5"]
    bench.write("capsule.toml", "[trace]\nenabled = 1\n")
    assert "must be true or false" in bench.refused("file.py")


def test_a_task_whose_process_was_killed_is_interrupted(bench: Bench) -> None:
    bench.write(
        "long.py",
        f"{HEAD}@task(name='main', compute='HIGH')\ndef main():\n    print('begun')\n    while True: pass\n",
    )
    talk = converse([str(CAPSULE), "run", "--trace", "long.py"], cwd=str(bench.folder))
    assert talk.output.read(6) == b"begun\n"
    assert [row.state for row in read_rows(str(bench.folder))] == ["running"]
    follow = converse([str(CAPSULE), "log", "--follow", "--json", "--failed"], cwd=str(bench.folder))
    # It has to see the row while the task runs, and tell of it when the task is no more.
    time.sleep(1.5)
    os.kill(talk.process.pid, signal.SIGKILL)
    talk.close()
    line = b""
    while not line.endswith(b"\n"):
        line += follow.output.read(1)
    told = json.loads(line)
    assert (told["id"], told["state"], told["ended_ms"]) == (1, "interrupted", None)
    follow.process.send_signal(signal.SIGINT)
    assert follow.close() == 130
    assert [row.state for row in read_rows(str(bench.folder))] == ["interrupted"]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_a_task_in_a_line_and_its_error_below(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    bench.write("file.py", FAILS)
    assert bench.command("run", "--trace", "file.py").code == 0
    monkeypatch.chdir(bench.folder)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    assert run_command(["log"]) == 0
    head, first, second, *said = [line.rstrip() for line in screen.getvalue().splitlines()]
    assert head.split() == ["id", "parent", "started", "task", "state", "ms", "retries", "fuel", "memory"]
    for line, name, state in ((first, "main", "completed"), (second, "fails", "failed")):
        assert re.search(rf"  \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  {name} +{state} ", line)
        assert re.search(r"  <?\d+ %  ", line)
    assert said[0].startswith("    task_error: ValueError: no way")
    assert all(line.startswith("    ") for line in said)
    assert max(map(len, screen.getvalue().splitlines())) <= columns


def test_a_place_that_takes_no_trace_is_wrong_usage(bench: Bench) -> None:
    bench.write("file.py", "def main(): return 1\n")
    place = bench.folder / ".capsule"
    place.write_text("a file")
    refused = bench.command("run", "--trace", "file.py")
    assert (refused.code, b"can't be made" in refused.stderr) == (2, True)
    place.unlink()
    (place / "trace.db").mkdir(parents=True)
    for command in (("log",), ("run", "--trace", "file.py")):
        refused = bench.command(*command)
        assert (refused.code, b"trace.db can't be" in refused.stderr) == (2, True)


def test_what_is_no_trace_is_said(bench: Bench) -> None:
    bench.write("file.py", "def main(): return 1\n")
    missing = bench.command("log")
    assert missing.code == 2
    assert b"--trace" in missing.stderr
    bench.write(".capsule/trace.db", "no database" * 100)
    for command in (("log",), ("run", "--trace", "file.py")):
        result = bench.command(*command)
        assert result.code == 5
        assert b"trace.db" in result.stdout + result.stderr
    (bench.folder / ".capsule/trace.db").unlink()
    elsewhere = bench.folder / "elsewhere"
    (bench.folder / ".capsule/trace.db").symlink_to(elsewhere)
    with pytest.raises(CapsuleError, match="is a symlink"):
        bench.run("file.py", trace=True)
    assert not Path(elsewhere).exists()
