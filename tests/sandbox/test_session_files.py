"""The folder of a session: what is copied, what is taken back, and its bounds."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

import capsule
from capsule_build.runtime.errors import CapsuleError, UsageError
from capsule_build.sandbox.sessions import folders
from capsule_build.sandbox.sessions.folders import TwinFolders, remove_tree

from .sessions import fails, go

if TYPE_CHECKING:
    from pathlib import Path


def content(folder: Path) -> dict[str, str | bytes | None]:
    """What a folder has: bytes of files, targets of links, `None` for folders."""
    found: dict[str, str | bytes | None] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def test_a_failed_run_leaves_nothing_and_a_kept_one_all_of_it(tmp_path: Path) -> None:
    twins = TwinFolders(tmp_path)
    folder = twins.begin()
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "d" / "e" / "f").write_text("1")
    (folder / "g").write_text("1")
    (folder / "link").symlink_to("g")
    twins.keep()
    before = content(twins.kept)
    assert before == {"d": None, "d/e": None, "d/e/f": b"1", "g": b"1", "link": "g"}
    for spoil in range(5):
        folder = twins.begin()
        assert content(folder) == before
        # Within one step of the kernel's clock, and of the same size.
        (folder / "g").write_text("2")
        if spoil:
            (folder / "d" / "e" / "f").unlink()
            (folder / "d" / "e").rmdir()
            (folder / "d" / "e").symlink_to("/etc")
            (folder / "link").unlink()
            (folder / "link").mkdir()
            (folder / "link" / "new").write_text("")
            os.link(folder / "g", folder / "hard")
        assert content(twins.kept) == before
    assert content(twins.begin()) == before
    # Changes from outside, and kept ones, come along alike.
    (twins.kept / "g").write_text("3")
    folder = twins.begin()
    (folder / "d" / "e" / "f").write_text("4")
    twins.keep()
    assert content(twins.begin()) == content(twins.kept) == {**before, "g": b"3", "d/e/f": b"4"}
    twins.clear()
    assert content(twins.begin()) == content(twins.kept) == {}


def test_what_has_not_changed_is_not_copied(tmp_path: Path) -> None:
    twins = TwinFolders(tmp_path)
    folder = twins.begin()
    for number in range(20):
        (folder / str(number)).write_bytes(b"x" * (1 << 20))
    twins.keep()
    first = time.perf_counter()
    twins.begin()
    second = time.perf_counter()
    inodes = {path.name: path.stat().st_ino for path in twins.begin().iterdir()}
    (twins.begin() / "3").write_text("changed")
    third = time.perf_counter()
    twins.begin()
    after = {path.name: path.stat().st_ino for path in twins.begin().iterdir()}
    assert {name for name in after if after[name] != inodes[name]} <= {"3"}
    assert third - second < second - first


def test_who_still_writes_into_a_folder_that_was_given_up_changes_nothing(tmp_path: Path) -> None:
    twins = TwinFolders(tmp_path)
    (twins.begin() / "f").write_text("1")
    twins.keep()
    folder = twins.begin()
    handle = os.open(folder, os.O_DIRECTORY)
    with (folder / "f").open("w") as late:
        twins.give_up()
        again = twins.begin()
        late.write("late")
    with pytest.raises(FileNotFoundError):
        os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=handle)
    os.close(handle)
    assert content(again) == content(twins.begin()) == content(twins.kept) == {"f": b"1"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_however_deep_a_folder_is_it_can_be_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    handle = os.open(top, os.O_DIRECTORY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=handle)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
        inner = os.open("d", os.O_DIRECTORY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    remove_tree(top)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_ENTRIES", 50)
    monkeypatch.setattr("capsule_build.sandbox.sessions.files.MAX_ENTRIES", 50)
    (tmp_path / "large").write_bytes(b"")
    os.truncate(tmp_path / "large", folders.MAX_BYTES + 1)

    async def use() -> None:
        async with capsule.Session("javascript") as session:
            await session.run("let x = 1; const fs = require('fs'); fs.writeFileSync('kept', 'kept')")
            deep = "let path = '.'; for (let i = 0; i < 70; i++) { path += '/d'; fs.mkdirSync(path) }"
            for code, says in (
                ("for (let i = 0; i < 60; i++) fs.writeFileSync('f' + i, '')", "more than 50 files"),
                ("fs.writeFileSync('f', ''); fs.truncateSync('f', 2 ** 40)", "more than 256 MB"),
                (f"{deep}", "50 files"),
            ):
                kind, message = await fails(session, f"x = 2; {code}")
                assert kind == "task_error"
                assert says in message
                assert await session.run("[x, fs.readdirSync('.')]") == "[ 1, [ 'kept' ] ]"
            monkeypatch.setattr(folders, "MAX_ENTRIES", 500)
            assert "deep" in (await fails(session, deep))[1]
            assert session.list_files() == {"kept": 4}
            with pytest.raises(CapsuleError, match="more than 256 MB"):
                session.import_file(tmp_path / "large")
            with pytest.raises(CapsuleError, match="can't have the file"):
                session.write_file("/".join("d" * 60), b"")
            assert session.list_files() == {"kept": 4}

    go(use())


def test_files_as_bytes() -> None:
    async def use() -> None:
        session = capsule.Session("javascript")
        with pytest.raises(UsageError, match="is bytes or a text, and no int"):
            session.write_file("a/b", 5)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no Unicode text"):
            session.write_file("a/b", "\ud800")
        session.write_file("a/b", "ü")
        assert session.read_file("a/b") == "ü".encode()
        session.write_file("a/b", b"\0\xff")
        assert await session.run("[...require('fs').readFileSync('a/b')]") == "[ 0, 255 ]"
        assert session.read_file("a/b", limit=2) == b"\0\xff"
        with pytest.raises(UsageError, match="more than 1 bytes"):
            session.read_file("a/b", limit=1)
        for name in ("a", "../x", "/x", "", "a/../../x"):
            with pytest.raises(UsageError):
                session.write_file(name, b"")
        session.delete_file("a/b")
        assert session.list_files() == {}
        session.close()
        session.close()

    go(use())
