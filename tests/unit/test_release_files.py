"""The files of a release may be anybody's, and lie anywhere: they are read and replaced with that in mind."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from capsule_build.cli.app import run
from capsule_build.release.outputs import Outputs, publish, remove_stale
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import SignatureError
from tests.releases import write_keys
from tests.signable import write_release

if TYPE_CHECKING:
    from pathlib import Path

BESIDE = ["digest", "sbom", "provenance", "signature", "provenance_signature", "sbom_signature"]


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path)


@pytest.fixture
def dist(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    """A folder of two signed releases."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for libc in ("glibc", "musl"):
        write_release(folder, libc)
    assert run(["sign", "--dist", str(folder), "--key", str(keys[0])]) == 0
    return folder


def put(path: Path, kind: str) -> None:
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        with path.open("wb") as stream:
            stream.truncate((64 << 20) + 1)
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        path.symlink_to("nowhere")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("folder", "is not a file"),
        ("pipe", "is not a file"),
        ("huge", "can't be read: it has more than 67108864 bytes"),
        ("loop", "can't be read: Too many levels of symbolic links"),
        ("dangling", "isn't there"),
    ],
)
def test_what_isnt_a_file_is_refused_and_not_waited_for(
    dist: Path, keys: tuple[Path, Path], kind: str, reason: str
) -> None:
    for name in BESIDE:
        outputs = Outputs(dist / "node24-v1-linux-x86_64-musl.tar.gz")
        path = getattr(outputs, name)
        before = path.read_bytes()
        put(path, kind)
        with pytest.raises(SignatureError, match=reason) as caught:
            verify_release(outputs.bundle, KeyPolicy(keys[1]))
        assert path.name in caught.value.message
        path.rmdir() if kind == "folder" else path.unlink()
        path.write_bytes(before)


def test_one_that_cant_be_read_keeps_no_other_from_being_verified(
    dist: Path, keys: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    put(dist / "node24-v1-linux-x86_64-glibc.tar.gz.cdx.json", "loop")
    capsys.readouterr()
    assert run(["verify", "--dist", str(dist), "--public-key", str(keys[1]), "--json"]) == 6
    caught = capsys.readouterr()
    assert {entry["ok"] for entry in json.loads(caught.out)["bundles"]} == {True, False}
    assert "glibc.tar.gz.cdx.json can't be read" in caught.err


@pytest.mark.parametrize("fails", [False, True], ids=["replaced", "taken back"])
def test_files_that_take_no_second_name_are_replaced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    # As on a file system without hard links, or where Linux keeps another user's files from having some.
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    old, last = tmp_path / "old", tmp_path / "last"
    old.write_bytes(b"before")
    if fails:
        last.mkdir()
        (last / "inside").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link)
        if fails:
            with pytest.raises(OSError, match="last"):
                publish({old: b"after", last: b"x"})
        else:
            publish({old: b"after", last: b"x"})
    assert old.read_bytes() == (b"before" if fails else b"after")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "old"]


def test_a_set_waits_for_another_one_of_the_folder(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    publish(dict.fromkeys(paths, b"before"))
    thread = threading.Thread(target=publish, args=(dict.fromkeys(paths, b"after"),))
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert {path.read_bytes() for path in paths} == {b"before"}
    finally:
        os.close(folder)
    thread.join(10)
    assert {path.read_bytes() for path in paths} == {b"after"}


@pytest.mark.timeout(60)
def test_a_folder_that_is_named_in_two_ways_does_not_wait_for_itself(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    publish({tmp_path / "folder/a": b"1", tmp_path / "link/b": b"2"})
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["a", "b"]


@pytest.mark.timeout(60)
def test_what_lies_in_a_files_place_is_not_waited_for(tmp_path: Path) -> None:
    place, stale = tmp_path / "x.wasm.sha256", tmp_path / ".x.wasm.1.part"
    for path in (place, stale):
        os.mkfifo(path)
    remove_stale(tmp_path)
    publish({place: b"after"})
    assert place.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [place]
