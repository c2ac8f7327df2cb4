"""The guest's bytes: the same wherever they are made, and in the wheel."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run
from capsule_build.sandbox import guest, health
from capsule_build.sandbox import making as python
from capsule_build.sandbox.javascript import making as javascript
from capsule_build.sandbox.linking.components import read_component
from capsule_build.sandbox.linking.linker import link
from capsule_build.sandbox.linking.modules import read_module
from capsule_build.sandbox.machine import guest_key
from capsule_build.sandbox.running import machine
from capsule_build.sandbox.store import Store

if TYPE_CHECKING:
    from .tasks import Bench

TOP = Path(guest.sources()).parent


def test_the_guest_that_tasks_run_in_is_the_recorded_one() -> None:
    """Whatever folder and time the tests' own one was made in."""
    machine(lambda _text: None)
    assert Store().made_from(guest_key()) == python.recorded_digest()


def test_the_guest_has_the_same_bytes_wherever_it_is_made(bench: Bench) -> None:
    """In memory, whose folders list their entries in another order, and under a name of another length."""
    memory = Path("/dev/shm", f"capsule-build-tests-{os.getpid()}", "x" * 40)
    memory.mkdir(parents=True)
    try:
        said = bench.command(
            "doctor", "--json", "--make-guests", "made", env={"TMPDIR": str(memory), "TZ": "Asia/Tokyo"}
        )
    finally:
        shutil.rmtree(memory.parent)
    made = json.loads(said.stdout)["checks"][-2:]
    for check, language, making in zip(made, ("python", "javascript"), (python, javascript), strict=True):
        assert (check["name"], check["status"]) == (f"made {language} guest", "ok")
        digest = hashlib.sha256((bench.folder / "made" / f"{language}.wasm").read_bytes()).hexdigest()
        assert digest == making.recorded_digest()
        assert digest in check["found"]
    # Calls of tasks are as fast as is promised only where its modules can be linked.
    before = (bench.folder / "made" / "python.wasm").read_bytes()
    linked = read_component(link(before))
    assert len(read_component(before).modules) > len(linked.modules)
    (one,) = [module for module in map(read_module, linked.modules) if module.memories]
    assert len(one.bodies) > 10_000
    assert sum(len(elements.functions) for elements in one.elements) > 5000


def test_a_guest_of_other_sources_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for language, known in health._GUESTS.items():
        monkeypatch.setitem(health._GUESTS, language, known._replace(make=lambda: b"other"))
    folder = bench.folder / "made"
    for made, recorded in zip(health.make_and_compare(folder), (python, javascript), strict=True):
        assert made.status == "fail"
        assert recorded.recorded_digest() in made.found
        assert "were changed" in str(made.advice)
    monkeypatch.setenv("PATH", "")
    assert "Without a C compiler" in str(health.make_and_compare(folder)[0].advice)
    assert "can't be written" in health.make_and_compare(bench.folder / "no" / "made")[1].found


@pytest.mark.soak
@pytest.mark.network
def test_a_wheel_has_the_guests_ready(bench: Bench) -> None:
    """Installed as the README says, where there is no componentize-py, tasks run in the recorded guests."""
    wheels, environment = bench.folder / "wheels", bench.folder / "environment"
    venv.create(environment, with_pip=True)
    pip = str(environment / "bin" / "pip")
    run([pip, "install", "-q", "."], cwd=TOP, timeout=900)
    run([pip, "wheel", "-q", "--no-deps", "-w", str(wheels), "."], cwd=TOP, timeout=900)
    (wheel,) = wheels.iterdir()
    assert wheel.stat().st_size < 20_000_000
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    kept = [path for folder in ("LICENSES", "js/LICENSES") for path in (TOP / "guest" / folder).iterdir()]
    assert {f"capsule_build/_data/{path.relative_to(TOP)}" for path in kept} <= names
    there = run([pip, "list", "--format=freeze"]).text
    assert "wasmtime" in there
    assert "componentize" not in there
    bench.write("file.py", "def main(*args):\n    return list(args)\n")
    bench.write("file.ts", "export const main = (...args: string[]): string[] => args;\n")
    alone = {"PATH": "", "HOME": str(bench.folder), "CAPSULE_CACHE_DIR": str(bench.folder / "cache")}
    # JavaScript's bundler isn't in the wheel, and npm says which registry has it. The guest is not made by Node.js.
    with_npm = {**os.environ, "CAPSULE_CACHE_DIR": alone["CAPSULE_CACHE_DIR"], "CAPSULE_NODE": "/nowhere"}
    with_npm.pop("PYTHONPATH", None)
    program = str(environment / "bin" / "capsule")
    for file, variables in (("file.py", alone), ("file.ts", with_npm)):
        ran = run([program, "run", "--json", file, "a"], cwd=bench.folder, env=variables)
        assert json.loads(ran.stdout)["result"] == ["a"]
    checks = json.loads(run([program, "doctor", "--json"], cwd=bench.folder, env=alone, check=False).stdout)
    found = {check["name"]: check["found"] for check in checks["checks"]}
    for language in ("python", "javascript"):
        assert "Its WebAssembly is the recorded one." in found[f"{language} guest"]


@pytest.mark.network
def test_licence_texts_are_those_of_the_pinned_packages() -> None:
    compared = set()
    for pin, tarball in javascript._fetch().items():
        kept = TOP / "guest" / "js" / "LICENSES" / f"{pin.component}.txt"
        with tarfile.open(tarball) as archive:
            if kept.exists():
                text = archive.extractfile("package/LICENSE")
                assert text is not None
                assert text.read() == kept.read_bytes()
                compared.add(pin.component)
    assert compared == {"acorn", "componentize-qjs", "core-js", "pathe", "unenv"}
