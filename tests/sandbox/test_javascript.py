"""JavaScript and TypeScript tasks as users write them: the twins of `test_tasks`."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.sandbox.javascript import machine

from .javascript import HEAD, script
from .tasks import Bench, error_of, last_line

if TYPE_CHECKING:
    from .tasks import Web

FIELDS = {"task_name", "duration_ms", "retries", "fuel_consumed", "ram_used", "host_requests"}
HELLO = (
    HEAD
    + 'export const main = task({ name: "main", compute: "LOW", ram: "64MB" }, %s => "Hello from Capsule!");\n'
)


@pytest.mark.parametrize(
    ("name", "signature"), [("a.ts", "(): string"), ("a.js", "()"), ("a.mjs", "async ()")]
)
def test_a_first_task_gives_its_result_and_an_envelope(bench: Bench, name: str, signature: str) -> None:
    bench.write(name, HELLO % signature)
    result = bench.command("run", name)
    envelope = last_line(result)
    assert result.code == 0
    assert (envelope["success"], envelope["result"], envelope["error"]) == (True, "Hello from Capsule!", None)
    execution = envelope["execution"]
    assert set(execution) == FIELDS
    assert (execution["task_name"], execution["retries"], execution["host_requests"]) == ("main", 0, [])
    assert 100_000 < execution["fuel_consumed"] < 10_000_000
    assert 1 << 20 < execution["ram_used"] < 16 << 20


def test_low_compute_ends_at_exactly_its_fuel(bench: Bench) -> None:
    for options, fuel in (('compute: "LOW"', 100_000_000), ("compute: 7654321", 7_654_321)):
        envelope = script(bench, "for (let i = 0; i < 1e8; i++);", options=options)
        assert error_of(envelope)[0] == "fuel_exhausted"
        assert envelope["execution"]["fuel_consumed"] == fuel


@pytest.mark.parametrize(
    "body",
    [
        "while (true);",
        "await new Promise((done) => setTimeout(done, 3000));",
        "/^(a+)+$/.test('a'.repeat(40) + 'b');",
        "Array.from({ length: 1e6 }, (_, i) => i % 7).sort((a, b) => { for (let i = 0; i < 1e4; i++); return a - b; });",
        "for (;;) 3n ** 600000n;",
        "endless();",
        "const f = () => Promise.resolve().then(f); await f();",
        "setInterval(() => {}, 1); await new Promise(() => {});",
    ],
)
def test_a_timeout_ends_whatever_is_going_on(bench: Bench, body: str) -> None:
    head = 'const endless = task({ name: "endless", compute: "HIGH" }, () => { while (true); });\n'
    options = "timeout: 500, compute: 'HIGH'"
    script(bench, body, options=options, head=head)  # the guest is loaded, and the file read
    times = []
    for _ in range(3):
        begin = time.monotonic()
        envelope = bench.run("file.mjs")
        times.append(time.monotonic() - begin)
        assert error_of(envelope)[0] == "timeout"
    # The best of three: what is measured is this program, and not what else the machine does.
    assert 0.45 < min(times) < 0.6


def test_too_much_memory_is_told_as_that(bench: Bench) -> None:
    for body in (
        "const x = []; for (let i = 0; i < 200; i++) x.push(new Uint8Array(1 << 20).fill(1));",
        "let x = ''; while (true) x += String.fromCharCode(65 + (x.length % 50)).repeat(1 << 20);",
    ):
        kind, message = error_of(script(bench, body, options="ram: '64MB', compute: 'HIGH'"))
        assert kind == "memory_exceeded"
        assert "67108864 bytes" in message
    envelope = script(bench, "return new Uint8Array(10 << 20).length;", options="ram: '64MB'")
    assert envelope["result"] == 10 << 20
    assert 10 << 20 < envelope["execution"]["ram_used"] <= 64 << 20


def test_ram_that_no_task_can_start_in_says_how_much_is_needed(bench: Bench) -> None:
    bench.write("small.ts", f'{HEAD}\nexport const main = task({{ name: "main", ram: "4MB" }}, () => 1);\n')
    assert bench.refused("small.ts") == "small.ts, line 3: ram='4MB': a JavaScript task needs at least 6 MB."
    assert script(bench, "return 1", options=f"ram: {machine.START_BYTES}")["result"] == 1


def test_an_error_that_is_printed_names_its_place(bench: Bench) -> None:
    script(bench, "console.error(new TypeError('said'));")
    assert bench.printed[2] == b"TypeError: said\n    at <anonymous> (file.mjs:3)\n"


def test_a_task_sees_the_variables_that_it_lists(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPSULE_T_SECRET", "no")
    monkeypatch.setenv("CAPSULE_T_KEY", "yes ü")
    bench.write(".env", "CAPSULE_T_FILE=of the file\n")
    assert script(bench, "return process.env")["result"] == {}
    listed = script(
        bench,
        "return process.env",
        options="envVariables: ['CAPSULE_T_KEY', 'CAPSULE_T_FILE', 'CAPSULE_T_NO']",
    )
    assert listed["result"] == {"CAPSULE_T_KEY": "yes ü", "CAPSULE_T_FILE": "of the file"}


def test_a_nested_task_gives_its_envelope_and_has_its_own_limits(bench: Bench) -> None:
    bench.write(
        "file.ts",
        HEAD
        + """
const LIMITS = { compute: "LOW", ram: `${32}MB` } as const;
export const add = task({ ...LIMITS }, (a: number, b: number) => a + b);
const bad = task({ name: "bad", maxRetries: 2 }, async (): Promise<void> => {
  throw new TypeError("no");
});
const small = task({ name: "small", ...LIMITS }, (kind: string) => {
  if (kind === "fuel") while (true);
  return new Array(100).fill(0).map(() => new Uint8Array(1 << 20)).length;
});

export const main = task({ name: "main", compute: "HIGH" }, () => {
  const mine = new Uint8Array(100 << 20);
  return [add(5, 1), bad(), small("fuel").error.error_type, small("ram").error.error_type, mine.length];
});
""",
    )
    first, bad, fuel, ram, _ = bench.run("file.ts")["result"]
    assert (first["success"], first["result"], first["execution"]["task_name"]) == (True, 6, "add")
    assert set(first["execution"]) == FIELDS
    assert bad["error"] == {"error_type": "task_error", "message": "TypeError: no (file.ts, line 6)"}
    assert bad["execution"]["retries"] == 2
    assert (fuel, ram) == ("fuel_exhausted", "memory_exceeded")


def test_tasks_call_each_other_only_so_deep(bench: Bench) -> None:
    bench.write(
        "file.mjs",
        HEAD + 'export const main = task({ name: "main" }, (n = 100) => (n ? main(n - 1) : "end"));\n',
    )
    level, depth = bench.run("file.mjs"), 0
    while level["success"]:
        level, depth = level["result"], depth + 1
    assert depth == 32
    assert error_of(level) == ("task_error", "Tasks call each other more than 32 deep.")


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("process.exit(3)", "task_error", r"process\.exit\(3\)"),
        ("require('http')", "task_error", "sandbox has no such module of Node"),
        ("const f = () => f() + 1; f()", "task_error", "nest too deep"),
        ("new Worker('x')", "task_error", "ReferenceError: Worker is not defined"),
        ("require('child_process').fork('x')", "task_error", "no such module of Node"),
        ("return 10n", "task_error", "TypeError: BigInt"),
        ("return () => 1", "task_error", "a result of type function is not JSON"),
        ("const a = []; a.push(a); return a", "task_error", "TypeError: circular"),
        ("throw { a: 1 }", "task_error", r"thrown: \{ a: 1 \}"),
        ("null.x", "task_error", r"TypeError: .* \(file.mjs, line 3\)"),
        (
            "await new Promise(() => {})",
            "task_error",
            "waits for a promise that nothing in the sandbox can settle",
        ),
        ("const { readable } = wit.Future(); await readable.read()", "task_error", "waits for a promise"),
        ("await eval('import(`x`)')", "wasm_error", "."),
        ("later", "task_error", "ReferenceError: later is not defined"),
        (
            "await Promise.reject(new RangeError('far'))",
            "task_error",
            r"RangeError: far \(file.mjs, line 3\)",
        ),
        ("eval('x y')", "task_error", "SyntaxError"),
    ],
)
def test_failures_say_what_they_are(bench: Bench, body: str, kind: str, says: str) -> None:
    said = error_of(script(bench, body))
    assert said[0] == kind, said
    assert re.search(says, said[1]), said


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("export const main = (", r"bad\.ts, line 1: Unexpected end of file"),
        ("const x = 1;\n", "no task 'main', no function main.* It has no tasks"),
        (HEAD + 'task({ name: "a" }, () => 1);\ntask({ name: "b" }, () => 1);', "It has the tasks a, b"),
        (HEAD + '\ntask({ name: "a", ram: "x" }, () => 1);', r"bad\.ts, line 3: ram='x': it must be a size"),
        (HEAD + 'task({ name: "a", cpu: 1 }, () => 1);', r"bad\.ts, line 2: task has no option 'cpu'"),
        (HEAD + 'task({ name: "a", ram: f() }, () => 1);', "'ram' of task must be a literal"),
        (HEAD + 'task({ name: "a", ...f() }, () => 1);', "must be a literal"),
        (
            HEAD + 'let r = "1MB"; r = "2MB";\ntask({ name: "a", ram: r }, () => 1);',
            "'ram' of task must be a literal",
        ),
        (
            HEAD + 'const o = { ram: "1MB" }; o.ram = "2GB";\ntask({ name: "a", ...o }, () => 1);',
            "must be a literal",
        ),
        (
            HEAD
            + "const { r } = f();\nfunction g() { const r = '1MB'; }\ntask({ name: 'a', ram: r }, () => 1);",
            "'ram' of task must be a literal",
        ),
        (HEAD + "task({}, () => 1);", "a task that isn't exported needs a name"),
        (HEAD + 'task({ name: "a" }, () => 1);\ntask({ name: "a" }, () => 2);', "two tasks 'a'"),
        (HEAD + 'task({ name: "a", timeout: "soon" }, () => 1);', "timeout='soon': it must be a time"),
        (HEAD + 'task({ name: "a", allowedFiles: ["../x"] }, () => 1);', "leaves the working folder"),
        (
            'import x from "./nope.js";\nexport const main = () => x;',
            'bad.ts, line 1: Could not resolve "./nope.js"',
        ),
        ('import x from "nope";\nexport const main = () => x;', 'Could not resolve "nope"'),
        (
            'import x from "nope/a";\nimport "@no/pe/b";\nimport "@no/pe";\nexport const main = () => x;',
            r"\. Install packages beside the file: npm install @no/pe nope$",
        ),
        (
            'import x from "./no.json";\nexport const main = () => x;',
            'Could not resolve "./no.json". Files that aren\'t code are read at run time, from allowedFiles.$',
        ),
        ("export const main = () => 1;\nawait 5;", "Await within the task's function"),
        ("(" * 3000 + "1" + ")" * 3000, "bad.ts"),
    ],
)
def test_a_file_that_says_wrong_things_is_refused_before_it_runs(
    bench: Bench, source: str, says: str
) -> None:
    bench.write("bad.ts", source)
    assert re.search(says, bench.refused("bad.ts"))


@pytest.mark.parametrize(
    "source",
    [
        "export function main() { return 7; }",
        "export default async function () { return 7; }",
        "export const main = () => 7;",
        HEAD + "export const only = task({}, () => 7);",
        'import * as sdk from "@capsule-build/sdk";\nsdk.task({ name: "x" }, () => 7);',
        'import { task as t } from "@capsule-run/sdk";\nexport default t({ name: "main" }, () => 7);\nexport const other = t({}, () => 8);',
        HEAD
        + 'const main = task({ name: "main" }, () => 8), x = task({ name: "x" }, () => main().result - 1);\nexport const y = task({ name: "y" }, () => 1);'.replace(
            "=> 8), x", "=> 7), x"
        ),
    ],
)
def test_the_entry_point_is_found(bench: Bench, source: str) -> None:
    bench.write("file.ts", source)
    assert bench.run("file.ts")["result"] == 7


def test_defaults_of_the_project_count(bench: Bench) -> None:
    bench.write("capsule.toml", "[workflow]\nentrypoint = 'file.js'\n[tasks]\ndefault_compute = '6000000'\n")
    bench.write("file.js", "export function main() { while (true); }\n")
    assert last_line(bench.command("run"))["execution"]["fuel_consumed"] == 6_000_000


def test_a_large_result_and_prints_are_exact_and_the_task_ran_once(bench: Bench) -> None:
    (bench.folder / "data").mkdir()
    body = """
const fs = require("fs");
fs.appendFileSync("data/count", "x");
for (let i = 0; i < 100; i++) process.stdout.write(String(i % 10).repeat(1 << 20));
console.error("é", 1);
return "y".repeat(100 << 20);
"""
    options = "compute: 'HIGH', allowedFiles: ['data'], maxRetries: 3"
    envelope = script(bench, body, options=options)
    assert envelope["success"], envelope["error"]
    assert envelope["result"] == "y" * (100 << 20)
    assert bench.printed[1] == b"".join(str(i % 10).encode() * (1 << 20) for i in range(100))
    assert bench.printed[2] == "é 1\n".encode()
    assert (bench.folder / "data" / "count").read_text() == "x"
    assert error_of(
        script(bench, body.replace('"y".repeat(100 << 20)', "Symbol()"), options="allowedFiles: ['data']")
    )
    assert (bench.folder / "data" / "count").read_text() == "xx"


@pytest.mark.parametrize(
    "value",
    [
        {"error": {"type": "timeout", "message": "no"}},
        {"result": 1},
        None,
        [],
        "",
        "\ud800 lone, \0 and \u2028",
        0.1,
    ],
)
def test_a_result_that_looks_like_an_answer_is_a_result(bench: Bench, value: object) -> None:
    envelope = script(bench, "return JSON.parse(args[0])", json.dumps(value))
    assert (envelope["success"], envelope["result"]) == (True, value)


def test_random_numbers_differ_between_runs(bench: Bench) -> None:
    body = (
        "return [Math.random(), crypto.randomUUID(), [...crypto.getRandomValues(new Uint8Array(8))].join()]"
    )
    first, second = (script(bench, body)["result"] for _ in range(2))
    assert not set(first) & set(second)
    assert 0 <= first[0] < 1


def test_what_the_web_and_node_have_in_common_is_there(bench: Bench) -> None:
    body = """
const { EventEmitter } = await import("node:events");
const path = require("path"), util = require("node:util"), { setTimeout: wait } = require("timers/promises");
const heard = [];
new EventEmitter().on("x", (value) => heard.push(value)).emit("x", 1);
setTimeout(() => heard.push("late"), 20);
setImmediate(() => heard.push("soon"));
process.nextTick(() => heard.push("next"));
await wait(40);
const decoder = new TextDecoder();
const bytes = new TextEncoder().encode("äö€😀");
return {
  heard,
  url: new URL("../x?a=ü b", "https://example.com/y/z").href,
  query: new URLSearchParams({ a: "1&2" }).toString(),
  text: [...bytes].map((byte) => decoder.decode(Uint8Array.of(byte), { stream: true })).join(""),
  broken: decoder.decode(Uint8Array.of(0xe4, 65, 0xf0, 0x9f, 66)),
  buffer: Buffer.from("abc").toString("base64"),
  clone: structuredClone(new Map([[1, { a: 2 }]])).get(1),
  path: path.join("a", "..", "b"),
  shown: util.format("%s %d", "x", 5, { a: [1, "b"] }),
  regexp: "2026-11-29".match(/(?<year>\\d+)/).groups.year,
  argv: process.argv.slice(2),
  aborted: AbortSignal.abort().reason.name,
  blob: await new Blob(["a", Uint8Array.of(98)]).text(),
};
"""
    assert script(bench, body, "first")["result"] == {
        "heard": [1, "next", "soon", "late"],
        "url": "https://example.com/x?a=%C3%BC%20b",
        "query": "a=1%262",
        "text": "äö€😀",
        "broken": "\ufffdA\ufffdB",
        "buffer": "YWJj",
        "clone": {"a": 2},
        "path": "b",
        "shown": "x 5 { a: [ 1, 'b' ] }",
        "regexp": "2026",
        "argv": ["first"],
        "aborted": "AbortError",
        "blob": "ab",
    }


def test_fetch_goes_through_the_host(bench: Bench, web: Web) -> None:
    body = f"""
const first = await fetch("{web.url}/x");
const posted = await fetch("{web.url}/m", {{ method: "post", body: JSON.stringify({{ a: "ü" }}), headers: {{ "X-A": "1" }} }});
const missing = await fetch("{web.url}/404");
const moved = await fetch("{web.url}/to?url=/x");
const head = await fetch("{web.url}/x", {{ method: "HEAD" }});
let denied;
try {{ await fetch("http://not.listed/"); }} catch (error) {{ denied = error.message; }}
return [first.status, first.ok, await first.json(), await posted.json(), posted.headers.get("x-method"),
        missing.ok, await missing.text(), moved.redirected, moved.url, await head.text(), denied];
"""
    envelope = script(bench, body, options="allowedHosts: ['127.0.0.1']")
    *found, denied = envelope["result"]
    world = {"hello": "world"}
    assert found == [200, True, world, {"a": "ü"}, "POST", False, "not here", True, f"{web.url}/x", ""]
    assert denied.startswith("the host 'not.listed' is not among")
    requests = envelope["execution"]["host_requests"]
    assert [entry["status"] for entry in requests] == [200, 200, 404, 302, 200, 200]
    assert requests[0] == {"method": "GET", "url": f"{web.url}/x", "status": 200}
    slow = script(
        bench, f"await fetch('{web.url}/slow')", options="allowedHosts: ['127.0.0.1'], timeout: '300ms'"
    )
    assert error_of(slow)[0] == "timeout"


def test_many_calls_leave_memory_flat(bench: Bench) -> None:
    from .test_command import resident

    script(bench, "console.log(args[0]); return args[0]")
    for number in range(100):
        assert bench.run("file.mjs", number)["result"] == number
    before = resident()
    for number in range(600):
        assert bench.run("file.mjs", number)["result"] == number
    assert resident() - before < 8 << 20
