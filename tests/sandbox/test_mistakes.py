"""What is wrong with a user's files, folders and streams is said as that, and never as a defect of ours."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run
from capsule_build.sandbox.store import default_root

from .tasks import CAPSULE

if TYPE_CHECKING:
    from .tasks import Bench

TASK = "def main(*args):\n    return list(args)\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1,2", "Expecting ',' delimiter: line 1 column 5 (char 4)"),
        ('["a', "Unterminated string"),
        ('{"a": 1,', "line 1 column 9"),
        ("", "no value at character 0"),
        ("[1] 2", "something follows the value, at character 3"),
        ("[" * 200_000, "lists and objects so deep in each other"),
    ],
    ids=["list", "string", "object", "empty", "more", "deep"],
)
def test_a_file_of_arguments_that_is_no_json(bench: Bench, text: str, says: str) -> None:
    """In a process of its own: what reads JSON here hasn't loaded Python's decoder, which knows its errors."""
    bench.write("file.py", TASK)
    bench.write("args.json", text)
    result = bench.command("run", "file.py", "--args-file", "args.json")
    assert (result.code, result.stdout) == (2, b"")
    said = result.error_text
    assert said.startswith("error: --args-file args.json can't be read: ")
    assert says in said


@pytest.mark.parametrize("variable", ["CAPSULE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
@pytest.mark.parametrize("place", ["/proc/nope", "/etc/passwd"])
def test_a_cache_that_cannot_be_made(bench: Bench, variable: str, place: str) -> None:
    bench.write("file.py", TASK)
    bench.write("file.ts", "export const main = (): number => 1;\n")
    env = {"CAPSULE_CACHE_DIR": "", "XDG_CACHE_HOME": "", variable: place}
    for file in ("file.py", "file.ts"):
        result = bench.command("run", file, env=env)
        assert (result.code, result.stdout) == (1, b"")
        told, hint = result.error_text.splitlines()
        assert told.startswith(f"error: {place}/")
        assert "/sandbox can't be written: " in told
        assert hint == "Name another folder with CAPSULE_CACHE_DIR."


def test_doctor_goes_on_where_there_can_be_no_cache(bench: Bench) -> None:
    result = bench.command("doctor", "--json", env={"CAPSULE_CACHE_DIR": "/proc/nope"})
    assert result.code == 1
    found = {check["name"]: check for check in json.loads(result.stdout)["checks"]}
    assert {"docker", "podman", "registry lock", "store", "wasmtime"} <= set(found)
    for name, status in (("python guest", "fail"), ("javascript guest", "warn")):
        assert found[name]["status"] == status
        assert found[name]["found"].startswith("/proc/nope/sandbox can't be written: ")
        assert "CAPSULE_CACHE_DIR" in found[name]["advice"]


@pytest.mark.parametrize("options", [["run", "file.py"], ["run", "--json", "file.py"]])
def test_standard_output_that_takes_nothing(bench: Bench, options: list[str]) -> None:
    bench.write("file.py", TASK)
    words = shlex.join([sys.executable, "-m", "capsule_build.cli.capsule", *options])
    result = run(["sh", "-c", f"exec {words} >/dev/full"], cwd=bench.folder, check=False)
    # What prepares the sandbox, where it isn't yet, says so above.
    *_, told = result.error_text.splitlines()
    assert (result.code, told) == (1, "error: standard output: No space left on device.")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide /proc from a command")
def test_without_proc_it_is_said_and_nothing_is_thrown_away(bench: Bench) -> None:
    bench.write("file.py", TASK)
    assert bench.command("run", "file.py").code == 0
    before = sorted(Path(default_root()).iterdir())
    hidden = 'mount -t tmpfs none /proc && exec "$@"'
    result = run(
        ["unshare", "--mount", "sh", "-c", hidden, "sh", str(CAPSULE), "run", "file.py"],
        cwd=bench.folder,
        check=False,
    )
    assert result.code != 0
    assert "Tasks need /proc" in result.error_text
    assert sorted(Path(default_root()).iterdir()) == before
