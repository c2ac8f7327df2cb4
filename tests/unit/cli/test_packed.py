"""`check` and `inspect` of packed tasks."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from tests.task_bundles import collected, packed

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = packed(collected(own={"helper.py": b"VALUE = 5\n"}), version="1.0.0")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "hello.wasm"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_a_packed_file_says_what_it_asks_for(cli: Callable[..., Ran], bundle: Path, command: str) -> None:
    ran = cli(command, bundle)
    assert ran.code == 0, ran.err
    assert "packed from  hello.py" in ran.out
    assert "1.0.0" in ran.out
    assert hashlib.sha256(DATA).hexdigest() in ran.out
    (task,) = (line for line in ran.out.splitlines() if line.startswith("task main"))
    assert "compute " in task
    assert "hosts " in task
    assert ("helper.py  10 B" in ran.out) == (command == "inspect")
    assert ("ok " in ran.out) == (command == "check")


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_machines_get_all_of_it(cli: Callable[..., Ran], bundle: Path, command: str) -> None:
    said = cli(command, bundle, "--json").json
    assert said["sha256"] == hashlib.sha256(DATA).hexdigest()
    assert said["size"] == len(DATA)
    assert said["entry"] == "main"
    assert said["files"]["helper.py"] == 10
    assert said["guest"]["language"] == "python"
    assert set(said["tasks"]["main"]) >= {"fuel", "memory", "timeout_ms", "folders", "hosts", "variables"}


@pytest.mark.parametrize("command", ["check", "inspect"])
def test_a_changed_byte_is_noticed(cli: Callable[..., Ran], bundle: Path, command: str) -> None:
    bundle.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    assert_one_message(cli(command, bundle), 5, "hello.wasm is no packed task: its bytes were changed")


def test_licences_of_packages_are_elsewhere(cli: Callable[..., Ran], bundle: Path) -> None:
    assert_one_message(cli("inspect", bundle, "--licenses"), 2, "--licenses is for runtime bundles")


@pytest.mark.parametrize("command", [("diff", "/no/such.tar.gz"), ("test",), ("reproduce",)])
@pytest.mark.parametrize("name", ["hello.wasm", "hello.tar.gz"])
def test_what_is_for_runtime_bundles_refuses_tasks(
    cli: Callable[..., Ran], tmp_path: Path, command: tuple[str, ...], name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(DATA)
    ran = cli(*command, path)
    assert_one_message(ran, 2, f"'{command[0]}' is for runtime capsules' bundles (.tar.gz);")
    assert f"{name} holds tasks." in " ".join(ran.err.split())
