"""The folder of compiled code: private, and byte for byte what was compiled."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.sandbox.memory import LinearMemories, Region, regions
from capsule_build.sandbox.store import MAX_COMPILED, Store, StoreError, default_root, prepare
from capsule_build.sandbox.wasmtime_abi import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

CODE = b"machine code" * 1000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(str(tmp_path / "cache"))
    store.put("key", CODE)
    return store


def content(store: Store) -> bytes | None:
    handle = store.open("key")
    if handle is None:
        return None
    with os.fdopen(handle, "rb") as stream:
        return stream.read()


def test_what_was_kept_is_given_back_and_is_private(store: Store) -> None:
    assert content(store) == CODE
    assert Path(store.root).stat().st_mode & 0o777 == 0o700
    assert Path(store.root, "key.cwasm").stat().st_mode & 0o777 == 0o600
    assert Store(store.root + "/none").open("key") is None
    assert store.open("other") is None


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_changed_file_is_not_used_and_removed(store: Store, keep_times: bool) -> None:
    path = Path(store.root, "key.cwasm")
    before = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"M")
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content(store) is None
    assert not path.exists()


def test_another_file_under_its_name_is_not_used(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * len(CODE))
    other.chmod(0o600)
    other.rename(Path(store.root, "key.cwasm"))
    assert content(store) is None


def test_a_file_that_was_only_touched_is_compared_and_used(store: Store) -> None:
    path = Path(store.root, "key.cwasm")
    os.utime(path)
    assert content(store) == CODE
    record = Path(store.root, "key.json").read_text()
    assert str(path.stat().st_mtime_ns) in record


@pytest.mark.parametrize("record", ["", "{}", "[]", '{"sha256": 5, "seen": []}', '{"seen": 1}', "\0"])
def test_without_a_whole_record_a_file_is_not_used(store: Store, record: str) -> None:
    Path(store.root, "key.json").write_text(record)
    assert content(store) is None


def test_what_others_could_change_is_refused(store: Store) -> None:
    for path, mode in ((Path(store.root), 0o755), (Path(store.root, "key.cwasm"), 0o620)):
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
        store.put("other", CODE)


def test_a_symlink_is_refused(store: Store, tmp_path: Path) -> None:
    path = Path(store.root, "key.cwasm")
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
        prepare(store, "key", make, lambda wasm: wasm + CODE, said.append, language="Python")
    assert content(store) == b"wasm" + CODE
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


def test_memories_are_told_from_the_map_of_a_process(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "1000-2000 r-xp 00000000 fe:00 1 /x/guest.cwasm\n"
        "10000-20000 rw-p 00000000 00:00 0 \n"
        "20000-30000 rw-p 00000000 fe:00 1 /x/guest.cwasm\n"
        "30000-50000 rw-p 00000000 00:00 0 \n"
        "50000-90000 ---p 00000000 00:00 0 \n"
        "a0000-b0000 rw-p 00000000 00:00 0 [heap]\n"
        "c0000-d0000 rw-p 00000000 fe:00 1 /x/guest.cwasm (deleted)\n"
    )
    assert regions(str(maps)) == [Region(0x10000, 0x50000), Region(0xC0000, 0xD0000)]


def test_the_kernel_says_of_single_parts_what_its_list_says(tmp_path: Path) -> None:
    file = tmp_path / "guest.cwasm"
    file.write_bytes(bytes(1 << 20))
    memories = LinearMemories()
    while memories.add() is not None:
        pass
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY):
        there = [region for region in regions() if region.end - region.start >= 1 << 20]
        start = memories.add()
        assert start in [region.start for region in there]
        assert memories.size(start) == next(r.end - r.start for r in there if r.start == start)
    memories.forget(start)
    assert memories.size(start) == memories.size(None) == 0


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
    assert content(store) == CODE


def test_only_the_newest_few_of_each_kind_are_kept(store: Store) -> None:
    for number in range(MAX_COMPILED + 2):
        for kind in ("guest", "javascript"):
            store.put(f"{kind}-{number}", CODE)
            path = f"{store.root}/{kind}-{number}.cwasm"
            os.utime(path, (number, number))
    for suffix in ("cwasm", "json"):
        kept = {path.stem for path in Path(store.root).glob(f"*-*.{suffix}")}
        assert kept == {f"{kind}-{number}" for kind in ("guest", "javascript") for number in (2, 3, 4)}
    # One more of a kind changes nothing of another, not even of one that is older than all of it.
    store.put("guest-5", CODE)
    assert (Path(store.root) / "javascript-2.cwasm").exists()
    assert not (Path(store.root) / "guest-2.cwasm").exists()
    assert content(store) == CODE
