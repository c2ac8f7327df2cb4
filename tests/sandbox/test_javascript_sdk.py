"""The npm package with the types, from its packed tarball, with a real Node.js."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.process import run
from capsule_build.sandbox.trust import Trust
from capsule_build.sandbox.worker.protocol import FIELDS

if TYPE_CHECKING:
    from .tasks import Bench

PACKAGE = Path(__file__).parents[2] / "sdk" / "js"
PROGRAM = """
import { task } from "@capsule-build/sdk";
const add = task({ name: "add", compute: "LOW" }, (a, b) => a + b);
const later = task({ name: "later" }, async () => { throw new Error("no"); });
console.log(JSON.stringify([add(2, 3), await later()].map(({ success, result, error }) => [success, result, error])));
"""


def test_outside_of_a_sandbox_a_task_runs_where_it_is(bench: Bench) -> None:
    run(["npm", "pack", "--silent", "--pack-destination", str(bench.folder), str(PACKAGE)], cwd=bench.folder)
    (tarball,) = bench.folder.glob("*.tgz")
    with tarfile.open(tarball) as archive:
        names = sorted(archive.getnames())
    inside = ("README.md", "index.d.ts", "index.js", "package.json", "runner.d.ts", "runner.js")
    assert names == [f"package/{name}" for name in inside]
    place = bench.folder / "node_modules" / "@capsule-build" / "sdk"
    place.parent.mkdir(parents=True)
    run(["tar", "--extract", "--file", str(tarball), "--directory", str(bench.folder)])
    (bench.folder / "package").rename(place)
    bench.write("program.mjs", PROGRAM)
    said = json.loads(run(["node", "program.mjs"], cwd=bench.folder).stdout)
    assert said == [[True, 5, None], [False, None, {"error_type": "task_error", "message": "Error: no"}]]


def test_the_types_have_the_options_that_the_host_reads() -> None:
    types = (PACKAGE / "index.d.ts").read_text()
    block = types.partition("export interface TaskOptions {")[2].partition("\n}")[0]
    options = set(re.findall(r"^  (\w+)\?:", block, re.MULTILINE))
    reading = (PACKAGE.parents[1] / "guest" / "js" / "reading.mjs").read_text()
    known = reading.partition("const OPTIONS = {")[2].partition("};")[0]
    assert options == set(re.findall(r"^  (\w+):", known, re.MULTILINE))


def test_run_has_the_options_that_the_worker_reads() -> None:
    table = (PACKAGE / "runner.js").read_text().partition("const FIELDS = {")[2].partition("};")[0]
    known = dict(re.findall(r'^  (\w+): "(\w+)",', table, re.MULTILINE))
    assert set(known.values()) == set(FIELDS) - {"stream", "cancel"}
    types = (PACKAGE / "runner.d.ts").read_text()
    block = types.partition("export interface WorkerRunOptions {")[2].partition("\n}")[0]
    options = set(re.findall(r"^  (\w+)\??:", block, re.MULTILINE))
    assert options == {*known, "signal", "onOutput"}
    asked = types.partition("export interface Trust {")[2].partition("\n}")[0]
    names = {
        re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name) for name in re.findall(r"(\w+)\?:", asked)
    }
    assert names == set(Trust._fields)
