"""`Session("javascript")`: state, failures, files, memory."""

from __future__ import annotations

import asyncio
import ctypes
import time
from typing import TYPE_CHECKING

import pytest

import capsule
from capsule_build.sandbox.javascript import image
from capsule_build.sandbox.javascript.image import MemoryCarrier

from .sessions import fails, go, resident

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from .tasks import Web

DECLARED = (
    ("let a = 1\nvar b = a + 1, c\nconst d = () => a", "a = 5; [b, c, d(), d.name]", "[ 2, undefined, 5, 'd' ]"),
    ("const {a, b: [c = 3, ...d]} = {a: 1, b: [undefined, 4]}", "[a, c, d]", "[ 1, 3, [ 4 ] ]"),
    ("for (var i = 0; i < 3; i++);\nif (true) var z = 1; else var z = 2", "[i, z]", "[ 3, 1 ]"),
    ("switch (1) { case 1: var s = 9 }\nfor (var k in {p: 1}) {}", "[s, k]", "[ 9, 'p' ]"),
    ("class A { #p = 2; get p() { return this.#p } }\nclass B extends A {}", "[new B().p, B.name]", "[ 2, 'B' ]"),
    ("f()\nfunction f() { return g() }\nfunction g() { return 1 }", "function g() { return 2 } f()", "2"),
    ("let a = 1", "const a = 2; a", "2"),
    ("const a = 1", "let a = 2; a++; a", "3"),
    ("const a = 1", "{ let a = 5; a++ } ((a) => { a = 7 })(1); a", "1"),
    ("import fs, { writeFileSync as w } from 'node:fs'\nimport * as p from 'path'", "w('x', 'y'); [fs.readFileSync('x', 'utf8'), p.join('a', 'b')]", "[ 'y', 'a/b' ]"),
    ("const late = async () => (await import('node:path')).sep", "await late()", "'/'"),
    ("const { join } = require('path')", "join('a', 'b')", "'a/b'"),
    ("const process = 5, URL = 6; function fetch() { return 7 }", "[process, URL, fetch()]", "[ 5, 6, 7 ]"),
    ("'use strict'; let a = 1; function f() { return this }", "[a, f()]", "[ 1, undefined ]"),
    ("export const a = 1; export default function f() { return a }", "f()", "1"),
    ("let go; const p = new Promise((done) => { go = done }); const q = p.then((v) => v * 2)", "go(21); await q", "42"),
    ("function* count() { let n = 0; for (;;) yield n++ }\nconst it = count(); it.next()", "it.next().value", "1"),
    ("const key = {}; const kept = new WeakMap([[key, 1]]); const set = new Set([key])", "[kept.get(key), set.has(key)]", "[ 1, true ]"),
    ("let n = 0; const later = setTimeout(() => n++, 20); later.unref()", "await new Promise((r) => setTimeout(r, 40)); n", "1"),
    ("const { a, ...rest } = { a: 1, b: 2 }; a; if (0) ;", "rest", "{ b: 2 }"),
)  # fmt: skip


@pytest.mark.parametrize(("first", "second", "said"), DECLARED)
def test_what_a_run_declares_outlives_it(first: str, second: str, said: str) -> None:
    async def use() -> None:
        async with capsule.Session("javascript") as session:
            await session.run(first)
            await session.run("1")
            assert await session.run(second) == said

    go(use())


WRONG = (
    ("return 5", "SyntaxError: 'return' outside of a function: a run gives the value of its last expression", 1),
    ("x = 50\nif (x) {\n  return x }", "SyntaxError: 'return' outside of a function: a run gives the value of its last expression", 3),
    ("x = 50\nx.y.z", "TypeError: cannot read property 'z' of undefined", 2),
    ("x = 50;\n\nfailing()", "RangeError: deep", 3),
    ("x = 50\nlet y = (", "SyntaxError: Unexpected token", 2),
    ("x = 50\nimport.meta", "SyntaxError: import.meta only valid in module code", 2),
    ("x = 50\nfixed = 2", "TypeError: Assignment to constant variable 'fixed'.", 2),
    ("x = 50; [fixed] = [2]", "TypeError: Assignment to constant variable 'fixed'.", 1),
    ("x = 50; (() => { fixed++ })()", "TypeError: Assignment to constant variable 'fixed'.", 1),
    ("x = 50\nimport y from 'left-pad'", "Error: Cannot find module 'left-pad': a run has no packages, and the sandbox has no such module of Node", 2),
    ("x = 50\nimport { nope } from 'fs'", "SyntaxError: The module 'fs' has no export named 'nope'", 2),
    ("x = 50\nexport default 5", "SyntaxError: 'export' of something else than a declaration: nobody imports a run", 2),
    ("x = 50\nthrow { code: 1 }", "Error: thrown: { code: 1 }", None),
    ("x = 50; process.exit(3)", "The task ended itself: process.exit(3).", None),
    ("x = 50; await new Promise(() => {})", "Error: the task waits for a promise that nothing in the sandbox can settle", None),
    ("x = 50\nsetTimeout(() => { throw new Error('late') }, 1)", "Error: late", 2),
    ("x = 50\nasync function f() { throw new Error('async') }\nf()", "Error: async", 2),
)  # fmt: skip


def test_a_failure_says_where_and_takes_back_its_own_changes_alone() -> None:
    async def use() -> None:
        async with capsule.Session("javascript", timeout="20s") as session:
            await session.run("let x = 1; const items = [1], same = items, fixed = 1")
            await session.run("\n\nfunction failing() { throw new RangeError('deep') }")
            assert await session.run("x += 1; x") == "2"
            for code, says, line in WRONG:
                place = "" if line is None else f" (<run 4>, line {line})"
                kept = f"require('fs').writeFileSync('f', 'f'); items.push(2); {code}"
                assert await fails(session, kept if line is None else code) == ("task_error", says + place)
            looked = "[x, items, same === items, fixed, require('fs').readdirSync('.')]"
            assert await session.run(looked) == "[ 2, [ 1 ], true, 1, [] ]"
            session.reset()
            assert (await fails(session, "x"))[1] == "ReferenceError: x is not defined (<run 1>, line 1)"

    go(use())


def test_used_up_limits_take_back_changes_too() -> None:
    async def use() -> None:
        async with capsule.Session("javascript", ram="64MB", timeout="2s", compute=3 * 10**9) as session:
            await session.run("let x = 1; const fs = require('fs'); fs.writeFileSync('f', 'old')")
            change = "x = 2; fs.writeFileSync('f', 'new'); fs.writeFileSync('g', '');"
            for code, kind in (
                ("for (;;) await new Promise((r) => setTimeout(r, 50))", "timeout"),
                ("for (;;);", "fuel_exhausted"),
                ("const all = []; for (;;) all.push(new Uint8Array(1 << 20))", "memory_exceeded"),
                ("new Uint8Array(1 << 30)", "memory_exceeded"),
                ("const f = () => f(); f()", "task_error"),
            ):
                assert (await fails(session, change + code))[0] == kind
                assert await session.run("[x, fs.readFileSync('f', 'utf8'), fs.readdirSync('.')]") == (
                    "[ 1, 'old', [ 'f' ] ]"
                )

    go(use())


def test_the_limit_of_memory_counts_what_earlier_runs_have_left() -> None:
    async def use() -> None:
        async with capsule.Session("javascript", ram="64MB") as session:
            await session.run("const held = []")
            grow = "for (let i = 0; i < 10; i++) held.push(new Uint8Array(1 << 20).fill(held.length))"
            for count in (10, 20, 30, 40):
                await session.run(grow)
                assert await session.run("[held.length, held.every((one, at) => one[99] === at)]") == (
                    f"[ {count}, true ]"
                )
            kind, message = await fails(session, f"{grow}\n{grow}")
            assert kind == "memory_exceeded"
            assert "67108864 bytes" in message
            # What is let go of can be used again.
            await session.run("held.length = 0")
            await session.run(grow)
            assert await session.run("held.length") == "10"

    go(use())


def test_what_a_run_leaves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "MAX_IMAGE_BYTES", 8 << 20)

    async def use() -> None:
        async with capsule.Session("javascript") as session:
            await session.run("let x = 1")
            kind, message = await fails(session, "x = new Uint8Array(16 << 20).fill(1); 1")
            assert kind == "memory_exceeded"
            assert "leaves more than" in message
            assert await session.run("x") == "1"
        # One that leaves nothing may use it.
        assert await capsule.run_javascript("new Uint8Array(16 << 20).fill(1).length") == "16777216"

    go(use())


def test_a_run_can_be_cancelled_at_any_time() -> None:
    async def use() -> None:
        async with capsule.Session("javascript", timeout="5m", compute=10**15) as session:
            await session.run("let x = 1")
            for delay in (0, 0.001, 0.003, 0.01, 0.03, 0.3):
                for code in ("for (;;);", "await new Promise((r) => setTimeout(r, 1e6))"):
                    run = asyncio.create_task(session.run(f"x = 2; {code}"))
                    await asyncio.sleep(delay)
                    run.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await run
                    assert await asyncio.wait_for(session.run("x"), 20) == "1"

    go(use())


def test_files_go_in_and_out_and_no_further(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1,2")

    async def use() -> None:
        async with capsule.Session("javascript") as session:
            session.import_file(tmp_path / "in.csv")
            session.import_file(tmp_path / "in.csv", "sub/again.csv")
            await session.run(
                "import fs from 'node:fs';\n"
                "fs.writeFileSync('out', fs.readFileSync('in.csv') + fs.readFileSync('/workspace/sub/again.csv', 'utf8'))"
            )
            session.export_file("out", tmp_path / "out")
            assert (tmp_path / "out").read_text() == "1,21,2"
            session.delete_file("in.csv")
            assert await session.run("[process.cwd(), fs.readdirSync('.')]") == (
                "[ '/workspace', [ 'out', 'sub' ] ]"
            )
            assert "ENOENT" in (await fails(session, "fs.readFileSync('/etc/passwd')"))[1]
            for path in ("../../etc/passwd", "sub/../../x", "/workspace/../x"):
                assert (await fails(session, f"fs.readFileSync('{path}')"))[0] == "permission_denied"
            session.reset()
            assert await session.run("require('fs').readdirSync('.')") == "[]"

    go(use())


def test_requests_go_where_they_are_allowed_to(web: Web) -> None:
    async def use() -> None:
        async with capsule.Session("javascript", allowed_hosts=["127.0.0.1"]) as session:
            await session.run(f"const answer = await fetch('{web.url}/hello')")
            # Its body was fetched by the run before.
            assert await session.run("[answer.status, (await answer.text()).length > 0]") == "[ 200, true ]"
            signal = "{ signal: AbortSignal.timeout(20000) }"
            began = time.monotonic()
            assert await session.run(f"(await fetch('{web.url}/hello', {signal})).status") == "200"
            assert time.monotonic() - began < 10
        async with capsule.Session("javascript") as session:
            assert (await fails(session, f"await fetch('{web.url}/hello')"))[0] == "permission_denied"

    go(use())


def test_what_belongs_to_an_instance_is_new_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEN", "1")

    async def use() -> None:
        async with capsule.Session("javascript", env_variables=["SEEN"]) as session:
            draw = "[Math.random(), crypto.randomUUID(), Math.random()].join()"
            drawn = {await session.run(draw) for _ in range(5)}
            for _ in range(3):
                with pytest.raises(capsule.SessionError) as caught:
                    await session.run(f"console.log({draw}); throw 1")
                drawn.add(caught.value.printed)
            assert len(drawn) == 8
            assert await session.run("process.env.SEEN") == "'1'"
            monkeypatch.setenv("SEEN", "2")
            assert await session.run("process.env.SEEN") == "'2'"
            await session.run("const then = Date.now()")
            await asyncio.sleep(0.1)
            assert await session.run("Date.now() - then >= 100") == "true"
            # A timer's time goes on only while a run does.
            await session.run("let n = 0; setTimeout(() => n++, 3000).unref()")
            assert await session.run("await new Promise((r) => setTimeout(r, 50)); n") == "0"

    go(use())


def test_code_that_breaks_its_guest_breaks_no_other_session() -> None:
    async def use() -> None:
        async with capsule.Session("javascript") as session, capsule.Session("javascript") as other:
            await other.run("let x = 1")
            for code in (
                "JSON.parse = () => { throw new Error('mine') }",
                "Promise.prototype.then = () => 1",
                "Array.prototype.push = () => 1; Array.prototype.filter = null",
                "for (const name of Object.getOwnPropertyNames(globalThis)) delete globalThis[name]",
                "__capsule.take = null; delete globalThis.__capsule; globalThis.__cqjs = null",
                "globalThis.host = null; globalThis.eval = null",
            ):
                try:
                    await session.run(code)
                    await session.run("1 + 1")
                except capsule.SessionError as error:
                    assert error.error_type in ("task_error", "wasm_error", "timeout")  # noqa: PT017
                assert await other.run("x") == "1"
                session.reset()
                assert await session.run("1 + 1") == "2"

    go(use())


def test_sessions_at_once_keep_to_themselves() -> None:
    async def use(name: str, language: str) -> None:
        begin, add, show = {
            "javascript": ("const seen = []", "seen.push('{}')", "seen.join()"),
            "python": ("seen = []", "seen.append('{}')", "','.join(seen)"),
        }[language]
        async with capsule.Session(language) as session:
            await session.run(begin)
            for count in range(15):
                await session.run(add.format(f"{name}{count}"))
            assert await session.run(show) == repr(",".join(f"{name}{count}" for count in range(15)))

    async def all_of_them() -> None:
        await asyncio.gather(*(use(name, "javascript") for name in "abcdef"), use("p", "python"))

    go(all_of_them())


def test_handles_of_an_instance_mean_nothing_in_the_next() -> None:
    async def use() -> None:
        async with capsule.Session("javascript", timeout="5s") as session:
            await session.run("let n = 1; const kept = wit.Future(); const waits = kept.readable.read(); 1")
            kind, message = await fails(session, "n = 2; kept.writable.write(7); await waits")
            assert (kind, "unknown handle" in message) == ("wasm_error", True)
            assert await session.run("n") == "1"

    go(use())


def test_instances_begin_with_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bytes] = []
    begin = MemoryCarrier.begin

    def look(
        self: MemoryCarrier, address: int, size: Callable[[], int], call: Callable[[bytes], bytes]
    ) -> None:
        found.append(ctypes.string_at(address, size()))
        begin(self, address, size, call)

    monkeypatch.setattr(MemoryCarrier, "begin", look)

    async def use() -> None:
        async with capsule.Session("javascript") as session:
            for _ in range(5):
                await session.run("globalThis.x = [globalThis.x, Math.random(), Date.now()]; 1")

    go(use())
    assert len(found) == 5
    assert len(set(found)) == 1


def test_what_differs_is_found_where_something_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []
    written = image._written

    def look(address: int, size: int) -> Iterable[int]:
        places = list(written(address, size))
        fresh = image._fresh[0].ljust(size, b"\0")
        now = ctypes.string_at(address, size)
        unit = image._UNIT
        differ = {at for at in range(0, size, unit) if now[at : at + unit] != fresh[at : at + unit]}
        assert places == sorted(places)
        assert differ <= set(places)
        compared.append((len(places), size // unit))
        return places

    monkeypatch.setattr(image, "_written", look)

    async def use() -> None:
        async with capsule.Session("javascript") as session:
            for _ in range(4):
                await session.run("globalThis.x = [globalThis.x, new Uint8Array(300000).fill(7)]; 1")

    go(use())
    assert len(compared) == 4
    assert all(places < all_units for places, all_units in compared), compared


def test_five_hundred_runs_keep_their_memory_and_their_time() -> None:
    async def use() -> None:
        async with capsule.Session("javascript") as session:
            await session.run("let x = 0; const fs = require('fs'); fs.writeFileSync('f', '')")
            code = (
                "x += 1; const made = Array.from({ length: 200 }, (_, i) => ({ i })); made[0].self = made;"
                "await new Promise((r) => setTimeout(r, 0)); fs.appendFileSync('f', 'x'); crypto.randomUUID(); 0"
            )
            times = []
            for count in range(500):
                began = time.perf_counter()
                await session.run(code)
                times.append(time.perf_counter() - began)
                if count == 60:
                    before, guest = resident(), await session.run("process.memoryUsage().rss")
            assert resident() - before < 8 << 20
            assert int(await session.run("process.memoryUsage().rss")) - int(guest) < 1 << 20
            assert await session.run("[x, fs.statSync('f').size]") == "[ 500, 500 ]"
            # The fastest ones: others wait for what else the machine does.
            assert min(times[350:]) < 2 * min(times[50:200])

    go(use())
