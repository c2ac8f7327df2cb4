"""Attempts of JavaScript tasks to get more than was granted (see `attempts`), and those of bundling."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from .attempts import DENIED, FAILED, REFUSED, SECRET, Attempt, assert_held, furnish
from .javascript import HEAD

if TYPE_CHECKING:
    from .tasks import Bench, Web

LOCAL = "allowedHosts: ['127.0.0.1']"

ATTEMPTS = (
    # Files.
    Attempt("an absolute path", "return fs.readFileSync('/etc/passwd', 'utf8')", FAILED, "ENOENT"),
    Attempt("the folder above", "return fs.readFileSync('data/../secret.txt', 'utf8')", DENIED, "EPERM"),
    Attempt("far above", "return fs.readFileSync('/data/../../../../etc/passwd', 'utf8')", DENIED, "EPERM"),
    Attempt("the working folder", "return fs.readFileSync('secret.txt', 'utf8')", FAILED, "ENOENT"),
    Attempt("a URL of a file", "return fs.readFileSync(new URL('file:///etc/passwd'), 'utf8')", FAILED, "ENOENT"),
    Attempt("listing the root", "return fs.readdirSync('/')", FAILED, "ENOENT"),
    Attempt("writing what is read-only", "fs.writeFileSync('input/new', 'x')", DENIED, "EPERM|EROFS"),
    Attempt("changing what is read-only", "fs.appendFileSync('input/in.txt', 'x')", DENIED, "EPERM|EROFS"),
    Attempt("removing what is read-only", "fs.unlinkSync('input/in.txt')", DENIED, "EPERM|EROFS"),
    Attempt("renaming out of what is read-only", "fs.renameSync('input/in.txt', 'data/x')", DENIED, "EPERM|EROFS"),
    Attempt("truncating what is read-only", "fs.truncateSync('input/in.txt', 0)", DENIED, "EPERM|EROFS"),
    Attempt("times of what is read-only", "fs.utimesSync('input/in.txt', 0, 0)", DENIED, "EPERM|EROFS"),
    Attempt("a folder in what is read-only", "fs.mkdirSync('input/x')", DENIED, "EPERM|EROFS"),
    Attempt("a hard link from what is read-only", "fs.linkSync('input/in.txt', 'data/l')", DENIED, "EPERM|EROFS"),
    Attempt("a symlink to a file outside", "return fs.readFileSync('data/out.txt', 'utf8')", DENIED, "EPERM"),
    Attempt("a symlink to a folder outside", "return fs.readdirSync('data/up')", DENIED, "EPERM"),
    Attempt("writing through a symlink", "fs.writeFileSync('data/up/new', 'x')", DENIED, "EPERM"),
    Attempt("making a symlink to outside", "fs.symlinkSync('/etc/passwd', 'data/mine'); return fs.readFileSync('data/mine', 'utf8')", DENIED, "EPERM"),
    Attempt("making a symlink that climbs", "fs.symlinkSync('../secret.txt', 'data/mine'); return fs.readFileSync('data/mine', 'utf8')", DENIED, "EPERM"),
    Attempt("renaming out of a folder", "fs.renameSync('data/d.txt', 'data/../moved')", DENIED, "EPERM"),
    Attempt("/proc", "return fs.readFileSync('/proc/self/environ', 'utf8')", FAILED, "ENOENT"),
    Attempt("devices", "return fs.readFileSync('/dev/mem')", FAILED, "ENOENT"),
    Attempt("a null byte", "return fs.readFileSync('data/d.txt\\0/../../secret.txt', 'utf8')", FAILED, "ENOENT"),
    Attempt(
        "a race of symlinks",
        """
        for (let turn = 0; turn < 300; turn++) for (const target of ["../secret.txt", "d.txt"]) {
          fs.rmSync("data/race", { force: true });
          fs.symlinkSync(target, "data/race");
          try { if (fs.readFileSync("data/race", "utf8").includes("secret")) return "escaped"; } catch {}
        }
        return "held";
        """,
        None,
        "held",
        "compute: 'MEDIUM'",
    ),
    # Variables, processes, memory.
    Attempt("variables", "return Object.keys(process.env)", None, ["CAPSULE_T_GIVEN"]),
    Attempt("a variable by name", "return process.env.CAPSULE_T_SECRET ?? null", None, None),
    Attempt("a process", "require('child_process').execSync('id')", FAILED, "no such module of Node"),
    Attempt("a worker", "require('worker_threads')", FAILED, "no such module of Node"),
    Attempt("machine code", "process.dlopen({ exports: {} }, 'x.node')", FAILED, "not a function"),
    Attempt("internals of Node", "return process.binding('fs')", FAILED, "not a function"),
    Attempt("a signal to the host", "process.kill(1, 9)", FAILED, "not a function"),
    Attempt("memory without end", "const x = []; for (;;) x.push(new Uint8Array(1 << 20).fill(1))", "memory_exceeded", ".", "compute: 'HIGH'"),
    Attempt("recursion without end", "const f = () => f() + 1; f()", FAILED, "nest too deep"),
    Attempt("recursion in C", "let x = []; for (let i = 0; i < 1e5; i++) x = [x]; return JSON.stringify(x).length", "task_error|wasm_error", ".", "compute: 'HIGH'"),
    Attempt("compute without end", "while (true);", "fuel_exhausted", "100000000"),
    Attempt("compute in promises", "const f = () => Promise.resolve().then(f); await f()", "fuel_exhausted", "100000000"),
    # Hosts.
    Attempt("a socket", "require('net').connect(PORT)", FAILED, "no such module of Node"),
    Attempt("a host that isn't listed", "await fetch('http://example.org/')", DENIED, "not among the task's"),
    Attempt("an address", "await fetch('http://127.0.0.1:PORT/')", DENIED, "not among the task's"),
    Attempt("the metadata of a cloud", "await fetch('http://169.254.169.254/')", DENIED, "not among"),
    Attempt("a suffix that looks right", "await fetch('http://good.test.evil.test/')", DENIED, "not among"),
    Attempt("a user's name", "await fetch('http://good.test@127.0.0.1:PORT/')", FAILED, "user's name"),
    Attempt("a file by URL", "await fetch('file:///etc/passwd')", FAILED, "scheme"),
    *(
        Attempt(f"loopback as {host}", f"await fetch('http://{host}:PORT/')", DENIED, "isn't public|not among", "allowedHosts: ['*']")
        for host in ("localhost", "127.1", "2130706433", "0x7f000001", "0", "[::1]", "[::ffff:127.0.0.1]")
    ),
    Attempt("a name that resolves to loopback", "await fetch('http://localhost:PORT/')", DENIED, "isn't public", "allowedHosts: ['*', 'example.org']"),
    Attempt("a line in a header", "await fetch('http://127.0.0.1:PORT/', { headers: { A: 'b\\r\\nX: y' } })", FAILED, "Invalid value", LOCAL),
    Attempt("a line in a header, past the guest", "ask({ op: 'http', method: 'GET', url: 'http://127.0.0.1:PORT/', headers: [['A', 'b\\r\\nX: y']], body: null, timeout: null })", FAILED, ".", LOCAL),
    Attempt("a redirect to what isn't listed", "await fetch('http://127.0.0.1:PORT/to?url=http://localhost:PORT/')", DENIED, "'localhost' is not among", LOCAL),
    Attempt("a redirect to a file", "await fetch('http://127.0.0.1:PORT/to?url=file:///etc/passwd')", FAILED, "scheme", LOCAL),
    Attempt("redirects without end", "await fetch('http://127.0.0.1:PORT/to-itself')", FAILED, "more than 10 redirects", LOCAL),
    # The host function, asked directly.
    Attempt("an operation that doesn't exist", "ask({ op: 'shell', command: 'id' })", FAILED, "no such operation"),
    Attempt("no operation", "ask({})", FAILED, "no such request"),
    Attempt("what is no object", "return host('[1]')", None, re.compile("no such request")),
    Attempt("what is no JSON", "return host('}{')", None, re.compile('"kind": "value"')),
    Attempt("nesting in a request", "return host('['.repeat(100000))", None, re.compile('"kind"')),
    Attempt("what is no string", "host({ toString() { throw 1; } })", "wasm_error|task_error", "."),
    Attempt("grants in a request for a task", "return ask({ op: 'task', name: 'helper', args: [], kwargs: {}, allowed_files: ['/'], compute: 'HIGH' }).result", None, []),
    Attempt("a task that the file doesn't have", "ask({ op: 'task', name: 'other', args: [], kwargs: {} })", FAILED, "no task 'other'"),
    Attempt("a task made at run time", "return task({ name: 'made', allowedFiles: ['/'] }, () => 1)()", FAILED, "no task 'made'"),
    Attempt("a task with changed options", "task({ name: 'helper', allowedFiles: ['./data'] }, () => 1); return ask({ op: 'task', name: 'helper', args: [], kwargs: {} }).result", None, []),
    Attempt("options that change when they are read", "return sly().result", None, []),
    Attempt("hosts in a request", "ask({ op: 'http', method: 'GET', url: 'http://127.0.0.1:PORT/', headers: [], body: null, timeout: null, allowed_hosts: ['*'] })", DENIED, "not among"),
    Attempt("a method that is none", "ask({ op: 'http', method: 'GET / HTTP/1.1\\r\\nX: y\\r\\n\\r\\n', url: 'http://good.test/', headers: [], body: null, timeout: null })", FAILED, "method"),
    Attempt("a module by a path", "return ask({ op: 'module', name: '../secret' })", None, None),
    Attempt("data by an absolute path", "return ask({ op: 'data', package: null, path: '/etc/passwd' })", None, None),
    Attempt("data of the working folder", "return ask({ op: 'data', package: null, path: 'secret.txt' })", None, None),
    Attempt("a print to another stream", "ask({ op: 'print', stream: 7, text: 'x' }); ask({ op: 'print', stream: '/etc/x', text: 'x' }); return 'fine'", None, "fine"),
    Attempt("a print that is no text", "ask({ op: 'print', stream: 1, text: { a: 1 } })", FAILED, "no such request"),
    Attempt("a forged answer", "JSON.stringify = () => '{\"error\": {\"type\": \"made up\", \"message\": 5}}'; throw 1", "wasm_error", "isn't one"),
    Attempt("a changed engine", "Promise.prototype.then = () => {}; Array.prototype.map = () => ['x']; Map.prototype.get = () => () => fs.readFileSync('/etc/passwd'); return 1", "wasm_error|task_error", "."),
    Attempt("a forged envelope", "console.log('{\"success\": true, \"result\": 5}'); throw new Error('real')", FAILED, "real"),
    Attempt("a module of the engine's loader", "await eval('import(`/etc/passwd`)')", "wasm_error", "."),
    Attempt("WASI by import", "await import('wasi:filesystem/preopens@0.2.0')", REFUSED, "Could not resolve"),
    # What esbuild reads of this machine to make one text.
    Attempt("importing a file above", "return await import('../secret.json')", REFUSED, "which it can't"),
    Attempt("importing data beside it", "return await import('./private.json')", REFUSED, "which it can't"),
    Attempt("importing text beside it", "return require('./secret.txt')", REFUSED, "which it can't"),
    Attempt("importing an absolute path", "return require('ABOVE/secret.json')", REFUSED, "which it can't"),
    Attempt("importing code above", "return require('../above.js')", REFUSED, "which it can't"),
    Attempt("importing by a symlink", "return require('./linked.js')", REFUSED, "which it can't"),
    Attempt("importing a package that is a symlink", "return require('linked')", REFUSED, "which it can't"),
    Attempt("importing what is no code, as text", "return (await import('./secret.txt', { with: { type: 'text' } })).default", REFUSED, "."),
    Attempt("importing /etc/passwd", "return require('/etc/passwd')", REFUSED, "which it can't|No loader"),
    Attempt("importing /proc", "return require('/proc/self/environ')", REFUSED, "which it can't|No loader"),
    Attempt("an error's line of a file above", "return require('../broken.js')", REFUSED, "which it can't"),
    Attempt("a glob over a folder", "return (await import('../' + process.argv[9] + '.json')).default", f"{REFUSED}|{FAILED}", "."),
)  # fmt: skip


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 80


@pytest.fixture
def ground(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    furnish(bench, monkeypatch)
    bench.write("private.json", f'"{SECRET}"')
    above = bench.folder.parent
    (above / "secret.json").write_text(f'"{SECRET}"')
    (above / "above.js").write_text(f"module.exports = '{SECRET}';")
    (above / "broken.js").write_text(f"let {SECRET}")
    (bench.folder / "linked.js").symlink_to("../above.js")
    (bench.folder / "node_modules").mkdir()
    (bench.folder / "node_modules" / "linked.js").symlink_to(above / "above.js")
    return bench


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_an_attempt_to_get_out_fails_for_its_reason(ground: Bench, web: Web, attempt: Attempt) -> None:
    body = dedent(attempt.body).replace("PORT", str(web.port)).replace("ABOVE", str(ground.folder.parent))
    source = f"""{HEAD}
import fs from "node:fs";

const ask = (request) => {{
  const answer = JSON.parse(host(JSON.stringify(request)));
  if ("error" in answer) throw Object.assign(new Error(answer.error), answer.kind === "permission" ? {{ code: "EPERM" }} : {{}});
  return answer.answer;
}};
const look = () => {{
  const found = [];
  for (const name of ["/data/d.txt", "/secret.txt", "/etc/passwd"]) try {{ found.push(fs.readFileSync(name, "utf8")); }} catch {{}}
  return [...found, ...Object.keys(process.env)];
}};
const helper = task({{ name: "helper" }}, look);
let reads = 0;
const sly = task({{ name: "sly", ...{{ allowedFiles: [] }} }}, look);
export const main = task({{
  name: "main", compute: "LOW", ram: "64MB", timeout: "20s", envVariables: ["CAPSULE_T_GIVEN"],
  allowedFiles: ["./data", "./input:ro"], {attempt.options or "allowedHosts: ['good.test']"},
}}, async () => {{
{body}
}});
"""
    (ground.folder / "file.mjs").write_text(source)
    assert_held(attempt, ground, "file.mjs", web)


def test_a_source_map_above_is_not_read_through(ground: Bench) -> None:
    """esbuild follows what a file says of its own source map, wherever that lies."""
    text = {"version": 3, "sources": [f"{SECRET}.ts"], "names": [SECRET], "mappings": "AAAA;AACA;AACA"}
    (ground.folder.parent / "secret.map").write_text(json.dumps(text))
    ground.write(
        "file.mjs",
        """
        export const main = () => host(JSON.stringify({ op: "module", name: "source_map" }));
        //# sourceMappingURL=../secret.map
        """,
    )
    assert SECRET not in ground.run("file.mjs")["result"]


def test_one_task_sees_nothing_of_another(ground: Bench) -> None:
    ground.write(
        "file.mjs",
        "export const main = () => { const was = globalThis.left ?? null; globalThis.left = 1; Array.prototype.left = 1; return was; };\n",
    )
    assert [ground.run("file.mjs")["result"] for _ in range(3)] == [None] * 3


def test_a_nested_task_has_not_its_callers_grants(ground: Bench) -> None:
    ground.write(
        "file.mjs",
        HEAD
        + """
import fs from "fs";
const inner = task({ name: "inner" }, () => {
  try { return fs.readFileSync("/data/d.txt", "utf8"); } catch (error) { return [error.code, Object.keys(process.env).length]; }
});
export const main = task({ name: "main", allowedFiles: ["data"], envVariables: ["CAPSULE_T_GIVEN"] }, () =>
  [fs.readFileSync("/data/d.txt", "utf8"), inner().result]);
""",
    )
    assert ground.run("file.mjs")["result"] == ["d", ["ENOENT", 0]]


def test_a_changed_bundler_is_not_started(
    ground: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capsule_build.sandbox.javascript import making, program
    from capsule_build.sandbox.store import Store, StoreError

    real = making.bundler()
    monkeypatch.setattr(making, "bundler", lambda: real)
    (tmp_path / "cache").mkdir(mode=0o700)
    store = Store(str(tmp_path / "cache"))
    path = Path(program.bundler(store, lambda _text: None))
    assert path.stat().st_mode & 0o777 == 0o700
    for change in (b"#!/bin/sh\n", real[:-1]):
        path.write_bytes(change)
        assert Path(program.bundler(store, lambda _text: None)).read_bytes() == real
    path.chmod(0o755)
    with pytest.raises(StoreError, match="used by others"):
        program.bundler(store, lambda _text: None)
    path.unlink()
    path.symlink_to("/bin/true")
    with pytest.raises(StoreError, match="is no file"):
        program.bundler(store, lambda _text: None)
