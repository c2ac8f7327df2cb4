"""Files, modules and packages of JavaScript tasks; `run` and `exec`; the examples of capsule-run's description."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

import capsule
from capsule_build.runtime.errors import ContractError
from capsule_build.sandbox.languages import JAVASCRIPT
from capsule_build.sandbox.project import load_project
from capsule_build.sandbox.running import machine

from .javascript import HEAD, script
from .tasks import Bench, error_of, last_line

if TYPE_CHECKING:
    from pathlib import Path

LIMITED = """
import { VALUE } from "./helper.mjs";
import fs from "node:fs";
export const main = task({
  name: "main", compute: "LOW", ram: "64MB", timeout: 10_000, allowedFiles: ["./data:ro"], envVariables: ["CAPSULE_T_A"],
}, async (kind = "ok") => {
  if (kind === "write") fs.writeFileSync("data/x", "x");
  if (kind === "loop") while (true);
  if (kind === "ram") return Array.from({ length: 200 }, () => new Uint8Array(1 << 20)).length;
  return [VALUE, fs.readFileSync("data/d", "utf8"), Object.keys(process.env)];
});
"""

# From the description of capsule-run's npm package (crates/capsule-cli/npm/README.md of its repository).
HELLO = """
import { task } from "@capsule-run/sdk";

export const main = task({
  name: "main",
  compute: "LOW",
  ram: "64MB"
}, (): string => {
  return "Hello from Capsule!";
});
"""
EVALUATES = """
import { task } from "@capsule-run/sdk";

export const main = task({
  name: "main",
  compute: "LOW",
  ram: "64MB"
}, (code: string): string => {
  return eval(code);
});
"""
ANALYZES = """
import { task } from "@capsule-run/sdk";

export const analyzeData = task({
  name: "analyze_data",
  compute: "MEDIUM",
  ram: "512MB",
  timeout: "30s",
  maxRetries: 1
}, (dataset: number[]): object => {
  // Your code runs safely in a Wasm sandbox
  return { processed: dataset.length, status: "complete" };
});

export const main = task({
    name: "main",
    compute: "HIGH"
}, () => {
  return analyzeData([1, 2, 3, 4, 5]);
});
"""
PROJECT = """
[workflow]
name = "My AI Workflow"
version = "1.0.0"
entrypoint = "src/main.ts"  # Run `capsule run` without specifying a file

[tasks]
default_compute = "MEDIUM"
default_ram = "256MB"
default_timeout = "30s"
"""
FILES = """
import { task } from "@capsule-run/sdk";
import fs from "fs/promises";

export const main = task({
    name: "main",
    allowedFiles: [
        { path: "./data", mode: "read-only" },
        { path: "./output", mode: "read-write" },
    ]
}, async () => {
    const content = await fs.readFile("./data/input.txt", "utf8");
    await fs.writeFile("./output/result.txt", content);
    return content;
});
"""
HOSTS = """
import { task } from "@capsule-run/sdk";

export const main = task({
    name: "main",
    allowedHosts: ["api.openai.com", "*.anthropic.com"]
}, async () => {
    const response = await fetch("https://api.openai.com/v1/models");
    return response.json();
});
"""
VARIABLES = """
import { task } from "@capsule-run/sdk";

export const main = task({
    name: "main",
    envVariables: ["API_KEY"]
}, () => {
    const apiKey = process.env.API_KEY;
    return { apiKeySet: apiKey !== undefined };
});
"""


def test_the_examples_of_the_package_run_unchanged(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("hello.ts", HELLO)
    assert last_line(bench.command("run", "hello.ts"))["result"] == "Hello from Capsule!"
    assert bench.command("build", "hello.ts", "--export").code == 0
    assert last_line(bench.command("exec", "hello.wasm"))["result"] == "Hello from Capsule!"
    bench.write("capsule.ts", EVALUATES)
    evaluated = asyncio.run(capsule.run(file="./capsule.ts", args=["6 * 7"], cwd=str(bench.folder)))
    assert evaluated["result"] == 42
    bench.write("main.ts", ANALYZES)
    assert bench.run("main.ts")["result"]["result"] == {"processed": 5, "status": "complete"}
    bench.write("files.ts", FILES)
    bench.write("data/input.txt", "content")
    (bench.folder / "output").mkdir()
    assert bench.run("files.ts")["result"] == "content"
    assert (bench.folder / "output" / "result.txt").read_text() == "content"
    bench.write("variables.ts", VARIABLES)
    monkeypatch.setenv("API_KEY", "key")
    assert bench.run("variables.ts")["result"] == {"apiKeySet": True}
    bench.write("capsule.toml", PROJECT)
    bench.write("src/main.ts", HELLO)
    assert last_line(bench.command("run"))["result"] == "Hello from Capsule!"


def test_the_example_with_hosts_is_granted_them(bench: Bench) -> None:
    # Those hosts are out of reach of tests; `test_javascript` makes requests.
    from capsule_build.sandbox.javascript.loading import load_javascript

    path = bench.write("hosts.ts", HOSTS)
    engine = machine(lambda _text: None, JAVASCRIPT)
    loaded = load_javascript(str(path), load_project(str(bench.folder)), engine, lambda _text: None)
    assert loaded.file.tasks["main"].hosts == ("api.openai.com", "*.anthropic.com")


def test_files_are_read_and_written_as_far_as_they_were_granted(bench: Bench) -> None:
    (bench.folder / "a" / "b").mkdir(parents=True)
    (bench.folder / "in").mkdir()
    bench.write("in/x.bin", "xyz")
    body = """
const fs = require("fs");
fs.mkdirSync("a/b/c/d", { recursive: true });
fs.writeFileSync("a/b/c/d/x", "ä".repeat(100000));
fs.appendFileSync("/a/b/c/d/x", Buffer.from("00ff", "hex"));
fs.copyFileSync("in/x.bin", "a/b/z");
fs.renameSync("a/b/c/d/x", "a/b/y");
fs.rmSync("a/b/c", { recursive: true });
fs.rmSync("a/b/none", { force: true });
fs.symlinkSync("y", "a/b/link");
const seen = await new Promise((done) => fs.readFile("a/b/z", "utf8", (error, text) => done(text)));
return [fs.readdirSync("a/b"), fs.statSync("a/b/link").size, fs.lstatSync("a/b/link").isSymbolicLink(), seen,
        [...fs.readFileSync("a/b/y").subarray(-2)], fs.readdirSync("in", { withFileTypes: true }).map((e) => [e.name, e.isFile()]),
        fs.readFileSync("in/x.bin", "base64"), process.cwd()];
"""
    found = script(bench, body, options="allowedFiles: ['./a/b', { path: 'in', mode: 'ro' }]")
    assert found["result"] == [
        ["link", "y", "z"],
        200_002,
        True,
        "xyz",
        [0, 255],
        [["x.bin", True]],
        "eHl6",
        "/",
    ], found["error"]
    assert (bench.folder / "a" / "b" / "y").read_bytes() == "ä".encode() * 100_000 + b"\0\xff"


def test_modules_of_its_folder_and_packages_above_are_imported(bench: Bench) -> None:
    above = bench.folder.parent / "node_modules"
    for name, text in (
        ("esm/package.json", '{"name": "esm", "type": "module", "exports": {".": {"import": "./main.js"}}}'),
        ("esm/main.js", 'import data from "./data.json" with { type: "json" }; export const esm = data.a;'),
        ("esm/data.json", '{"a": 1}'),
        ("cjs/package.json", '{"name": "cjs", "main": "lib/index.js"}'),
        (
            "cjs/lib/index.js",
            'const { EventEmitter } = require("events"); exports.cjs = typeof EventEmitter;',
        ),
        ("@capsule-run/sdk/index.js", "throw new Error('not this one')"),
    ):
        path = above / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    bench.write("lib/deep.ts", "enum Kind { A = 4 }\nexport const deep: number = Kind.A;\n")
    bench.write(
        "file.ts",
        HEAD
        + """
import { esm } from "esm";
import { cjs } from "cjs";
import { deep } from "./lib/deep";
export const main = task({ name: "main" }, async () => [esm, cjs, deep, (await import("./lib/deep")).deep]);
""",
    )
    assert bench.run("file.ts")["result"] == [1, "function", 4, 4]
    bench.write("thrown.ts", "import './lib/throws';\nexport function main() {}\n")
    bench.write("lib/throws.ts", "type X = 1;\n\nthrow new RangeError('there');\n")
    assert error_of(bench.run("thrown.ts")) == ("task_error", "RangeError: there (lib/throws.ts, line 3)")


def test_a_file_may_have_any_name_but_one_that_stands_for_many(bench: Bench) -> None:
    for name in ("a=b.ts", "--bundle.ts", "ü ß.ts", "a'\"b.ts", "#x.ts", "a?b.ts", ":x.ts"):
        bench.write(name, "export const main = () => decodeURIComponent(import.meta.url);\n")
        assert bench.run(name)["result"] == f"file:///{name}"
    bench.write("*.ts", "export const main = () => 1;\n")
    assert "stands for many files" in bench.refused("*.ts")


def test_what_is_edited_or_appears_is_seen_by_every_file(bench: Bench) -> None:
    for name in ("one.mjs", "two.ts"):
        bench.write(name, 'import { VALUE } from "./helper.mjs";\nexport const main = () => VALUE;\n')
    for value in (1, 2):
        bench.write("helper.mjs", f"export const VALUE = {value};\n")
        # Long enough for what was made to be kept: it must not be used again when it shouldn't be.
        time.sleep(0.05)
        for _ in range(2):
            assert [bench.run(name)["result"] for name in ("one.mjs", "two.ts")] == [value, value]
    bench.write("near.mjs", 'import { VALUE } from "./which";\nexport const main = () => VALUE;\n')
    bench.write("which/index.js", "export const VALUE = 'index';\n")
    time.sleep(0.05)
    assert [bench.run("near.mjs")["result"] for _ in range(2)] == ["index"] * 2
    bench.write("which.js", "export const VALUE = 'file';\n")
    assert bench.run("near.mjs")["result"] == "file"


def test_a_file_that_did_not_change_is_not_bundled_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("file.mjs", "export const main = () => 7;\n")
    time.sleep(0.05)
    assert bench.run("file.mjs")["result"] == 7
    monkeypatch.setattr("capsule_build.sandbox.javascript.program.bundler", lambda *_: "/nowhere")
    assert bench.run("file.mjs")["result"] == 7


def test_run_and_exec_have_the_same_limits_and_grants_each_time(bench: Bench) -> None:
    bench.write("file.mjs", HEAD + LIMITED)
    bench.write("helper.mjs", "export const VALUE = 'helped';\n")
    bench.write("data/d", "d")
    built = bench.command("build", "file.mjs", "--export", "--json")
    assert json.loads(built.stdout)["modules"] == ["helper.mjs"]
    env = {"CAPSULE_T_A": "a", "CAPSULE_T_B": "b"}
    found = []
    for kind in ("ok", "write", "loop", "ram"):
        both = []
        for command, file in (("exec", "file.wasm"), ("run", "file.mjs")) * 2:
            envelope = last_line(bench.command(command, file, kind, env=env))
            envelope["execution"]["duration_ms"] = 0
            both.append(envelope)
        assert both[0] == both[1] == both[2] == both[3]
        found.append(both[0]["result"] or both[0]["error"]["error_type"])
    assert found == [
        ["helped", "d", ["CAPSULE_T_A"]],
        "permission_denied",
        "fuel_exhausted",
        "memory_exceeded",
    ]


def test_a_packed_file_is_the_same_each_time_and_refused_when_changed(bench: Bench) -> None:
    bench.write("file.ts", HELLO)
    digests = {
        json.loads(bench.command("build", "file.ts", "--export", "--json").stdout)["sha256"] for _ in range(2)
    }
    assert len(digests) == 1
    whole = bytearray((bench.folder / "file.wasm").read_bytes())
    whole[len(whole) // 2] ^= 1
    (bench.folder / "file.wasm").write_bytes(whole)
    with pytest.raises(ContractError, match="no packed task"):
        bench.run("file.wasm")


def test_json_alone_and_what_was_printed(bench: Bench) -> None:
    bench.write(
        "file.js",
        "export function main(...args) { console.log('printed', args); console.error('e'); return args; }\n",
    )
    alone = bench.command("run", "--json", "file.js", "a", "-5")
    assert json.loads(alone.stdout)["result"] == ["a", "-5"]
    assert alone.stderr == b"printed [ 'a', '-5' ]\ne\n"


def test_a_program_runs_files_of_both_languages_at_once(bench: Bench) -> None:
    bench.write("file.py", "def main(n):\n    return n * 2\n")
    bench.write("file.ts", "export const main = (n: number): number => n * 3;\n")

    async def ask() -> list[object]:
        files = [(f"file.{('py', 'ts')[number % 2]}", number) for number in range(20)]
        calls = [capsule.run(file=file, args=[number], cwd=str(bench.folder)) for file, number in files]
        return [envelope["result"] for envelope in await asyncio.gather(*calls)]

    assert asyncio.run(ask()) == [number * (2, 3)[number % 2] for number in range(20)]


def test_the_guest_is_the_recorded_one(tmp_path: Path) -> None:
    import hashlib

    from capsule_build.sandbox.javascript import making

    assert hashlib.sha256(making.make_guest(need_compiler=True)).hexdigest() == making.recorded_digest()
