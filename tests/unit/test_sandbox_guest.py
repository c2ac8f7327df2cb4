"""What the guest is made from, and one that is ready."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

import pytest

from capsule_build.runtime.errors import CapsuleError
from capsule_build.runtime.process import CommandError, run
from capsule_build.sandbox import guest, making, prebuilt, wasmtime_abi


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "guest"
    shutil.copytree(guest.sources(), copy, ignore=shutil.ignore_patterns("guest.wasm*", "__pycache__"))
    monkeypatch.setattr(guest, "sources", lambda: str(copy))
    return copy


def test_every_source_counts_for_the_digest(sources: Path) -> None:
    names = guest.files()
    assert {"task.wit", "steady.c", "capsule_guest.py", "capsule/__init__.py", "capsule/http.py"} <= set(
        names
    )
    before = guest.digest()
    for name in names:
        own = (sources / name).read_bytes()
        (sources / name).write_bytes(own + b" ")
        assert guest.digest() != before, name
        (sources / name).write_bytes(own)
    assert guest.digest() == before


def test_a_guest_that_is_ready_is_taken_only_if_it_is_the_recorded_one(sources: Path) -> None:
    said: list[str] = []
    (sources / "guest.wasm").write_bytes(b"ready")
    with pytest.raises(CapsuleError, match="isn't the guest that its digest names"):
        making.ready_guest(said.append)
    (sources / "guest.sha256").write_text(f"{hashlib.sha256(b'ready').hexdigest()}  guest.wasm\n")
    assert making.ready_guest(said.append) == b"ready"
    assert said == []
    (sources / "guest.wasm").unlink()
    for language in ("Python", "JavaScript"):
        assert prebuilt.ready(str(sources), lambda: b"made", said.append, language=language) == b"made"
        assert said.pop() == f"Preparing the sandbox, once on this machine: making {language}'s guest ..."


def test_without_a_compiler_a_wheel_gets_no_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CapsuleError, match="no C compiler 'cc'"):
        making.make_guest(need_compiler=True)


def test_what_makes_the_guest_is_found_in_an_isolated_build_of_pip() -> None:
    """There its folder is on the path of this process alone: the guest's environment has no PYTHONPATH."""
    folder = str(importlib.metadata.distribution("componentize-py").locate_file(""))
    program = f"""
import sys
sys.path[:0] = [{str(Path(guest.sources()).parent)!r}, {folder!r}]
from capsule_build.runtime.process import run
from capsule_build.sandbox.making import componentizer
print(run([*componentizer(), "--version"], env={{}}).text)
"""
    outside = getattr(sys, "_base_executable", sys.executable)
    with pytest.raises(CommandError, match="No module named 'componentize_py'"):
        run([outside, "-I", "-c", "import componentize_py"])
    assert guest.COMPONENTIZE in run([outside, "-I", "-c", program]).text


def test_another_componentize_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "COMPONENTIZE", "0.1.0")
    with pytest.raises(CapsuleError, match=r"componentize-py 0\.1\.0, and here it is"):
        making.make_guest()


def test_sources_that_are_missing_are_told(sources: Path) -> None:
    (sources / "task.wit").unlink()
    with pytest.raises(CapsuleError, match="sources are missing"):
        guest.digest()


def test_the_library_is_of_the_version_that_the_structures_are_for() -> None:
    assert wasmtime_abi.library_path().endswith("/_libwasmtime.so")
    assert wasmtime_abi.VERSION == "50.0.1"


def test_another_version_of_the_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "wasmtime" / f"linux-{os.uname().machine}" / "_libwasmtime.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"")
    (tmp_path / "wasmtime-49.0.0.dist-info").mkdir()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(CapsuleError, match=r"Wasmtime 50\.0\.1 .* isn't installed"):
        wasmtime_abi.library_path()
