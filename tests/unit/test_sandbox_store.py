"""The folder of compiled code: private, and byte for byte what was compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.sandbox.store import MAX_COMPILED, Guest, Store, StoreError, default_root, prepare
from capsule_build.sandbox.wasmtime_abi import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

CODE = b"machine code" * 1000
IMAGE = b"memory" * 1000
GUEST = Guest(CODE, IMAGE)
FILES = pytest.mark.parametrize("suffix", ["cwasm", "image"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path / "cache"))
    store.put("key", GUEST)
    return store


def content(store: Store) -> Guest | None:
    files = store.open("key")
    if files is None:
        return None
    with os.fdopen(files.code, "rb") as code, os.fdopen(files.image, "rb") as image:
        return Guest(code.read(), image.read())


def test_what_was_kept_is_given_back_and_is_private(store: Store) -> None:
    assert content(store) == GUEST
    assert Path(store.root).stat().st_mode & 0o777 == 0o700
    for suffix in ("cwasm", "image", "json"):
        assert Path(store.root, f"key.{suffix}").stat().st_mode & 0o777 == 0o600
    assert Store(store.root + "/none").open("key") is None
    assert store.open("other") is None


@FILES
@pytest.mark.parametrize("keep_times", [False, True])
def test_a_changed_file_is_not_used_and_removed(store: Store, suffix: str, keep_times: bool) -> None:
    path = Path(store.root, f"key.{suffix}")
    before = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"M")
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content(store) is None
    assert not list(Path(store.root).glob("key.*"))


@FILES
def test_another_file_under_its_name_is_not_used(store: Store, suffix: str, tmp_path: Path) -> None:
    path = Path(store.root, f"key.{suffix}")
    other = tmp_path / "other"
    other.write_bytes(b"x" * path.stat().st_size)
    other.chmod(0o600)
    other.rename(path)
    assert content(store) is None


@FILES
def test_without_one_of_the_files_there_is_none(store: Store, suffix: str) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    Path(store.root, f"key.{suffix}").unlink()
    assert content(store) is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@FILES
def test_a_file_that_was_only_touched_is_compared_and_used(store: Store, suffix: str) -> None:
    path = Path(store.root, f"key.{suffix}")
    os.utime(path)
    assert content(store) == GUEST
    record = Path(store.root, "key.json").read_text()
    assert str(path.stat().st_mtime_ns) in record


@pytest.mark.parametrize(
    "record", ["", "{}", "[]", '{"cwasm": 5, "image": {}}', '{"cwasm": {"seen": 1}, "image": []}', "\0"]
)
def test_without_a_whole_record_a_guest_is_not_used(store: Store, record: str) -> None:
    path = Path(store.root, "key.json")
    path.write_text(record)
    assert content(store) is None
    # Another process may just be keeping it: its files stay.
    assert Path(store.root, "key.cwasm").exists()
    path.unlink()
    assert content(store) is None


def test_what_others_could_change_is_refused(store: Store) -> None:
    for path, mode in (
        (Path(store.root), 0o755),
        (Path(store.root, "key.cwasm"), 0o620),
        (Path(store.root, "key.image"), 0o604),
    ):
        own = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(StoreError, match="can be used by others"):
            store.open("key")
        path.chmod(own)
    Path(store.root, "key.json").chmod(0o666)
    with pytest.raises(StoreError, match="can be used by others"):
        store.open("key")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_is_refused(store: Store) -> None:
    os.chown(Path(store.root, "key.cwasm"), 12345, 12345)
    with pytest.raises(StoreError, match="belongs to user 12345"):
        store.open("key")
    os.chown(store.root, 12345, 12345)
    with pytest.raises(StoreError, match="belongs to user 12345"):
        store.open("key")
    with pytest.raises(StoreError, match="belongs to user 12345"):
        store.put("other", GUEST)


@FILES
def test_a_symlink_is_refused(store: Store, suffix: str, tmp_path: Path) -> None:
    path = Path(store.root, f"key.{suffix}")
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="can't be opened"):
        store.open("key")
    link = tmp_path / "link"
    link.symlink_to(store.root)
    with pytest.raises(StoreError, match="is not a folder"):
        Store(str(link)).open("key")


def test_it_is_made_once_and_told(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "cache"))
    made: list[bytes] = []
    said: list[str] = []

    def make(say: Callable[[str], None]) -> bytes:
        say("It is made.")
        made.append(b"wasm")
        return b"wasm"

    for _ in range(2):
        prepare(store, "key", make, lambda wasm: Guest(wasm + CODE, IMAGE), said.append, language="Python")
    assert content(store) == Guest(b"wasm" + CODE, IMAGE)
    assert len(made) == 1
    assert said == [
        "It is made.",
        "Preparing the sandbox, once on this machine: compiling Python's guest ...",
        f"The sandbox for Python is ready (Wasmtime {VERSION}).",
    ]


def test_the_folder_is_the_users_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPSULE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert default_root() == "/x/capsule-build/sandbox"
    monkeypatch.setenv("CAPSULE_CACHE_DIR", "/y")
    assert default_root() == "/y/sandbox"


def test_notes_are_private_and_few(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.note("tasks-a") is None
    store.put_note("tasks-a", b"a")
    assert store.note("tasks-a") == b"a"
    Path(store.root, "tasks-a").chmod(0o644)
    with pytest.raises(StoreError, match="can be used by others"):
        store.note("tasks-a")
    monkeypatch.setattr("capsule_build.sandbox.store.MAX_NOTES", 3)
    for number in range(10):
        store.put_note(f"tasks-{number}", b"x")
    assert len([path for path in Path(store.root).iterdir() if path.name.startswith("tasks-")]) <= 3
    assert content(store) == GUEST


def test_only_the_newest_few_of_each_kind_are_kept(store: Store) -> None:
    for number in range(MAX_COMPILED + 2):
        for kind in ("guest", "javascript"):
            store.put(f"{kind}-{number}", GUEST)
            path = f"{store.root}/{kind}-{number}.cwasm"
            os.utime(path, (number, number))
    for suffix in ("cwasm", "image", "json"):
        kept = {path.stem for path in Path(store.root).glob(f"*-*.{suffix}")}
        assert kept == {f"{kind}-{number}" for kind in ("guest", "javascript") for number in (2, 3, 4)}
    # One more of a kind changes nothing of another, not even of one that is older than all of it.
    store.put("guest-5", GUEST)
    assert (Path(store.root) / "javascript-2.cwasm").exists()
    assert not (Path(store.root) / "guest-2.cwasm").exists()
    assert content(store) == GUEST
