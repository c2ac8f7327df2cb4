"""What isn't a file is neither waited for nor touched, whatever its name leads to."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.errors import UsageError
from capsule_build.runtime.regular import UnfitFileError, open_at_once, open_regular, read_named, read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_is_read_whole_up_to_its_limit(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    (tmp_path / "link").symlink_to("file")
    for name in (path, str(path), tmp_path / "link"):
        assert read_regular(name, limit=100) == b"x" * size


def test_one_byte_more_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 101)
    with pytest.raises(UnfitFileError, match="it has more than 100 bytes"):
        read_regular(tmp_path / "file", limit=100)


def test_of_a_file_that_grows_no_more_than_the_limit_is_taken(tmp_path: Path) -> None:
    """Its size is 0, as that of all files there, and what it has is more."""
    maps = Path("/proc/self/maps")
    assert maps.stat().st_size == 0
    with pytest.raises(UnfitFileError, match="more than 100 bytes"):
        read_regular(maps, limit=100)


def listening(path: Path) -> None:
    # A socket stays in its folder, and no name may have more than 107 characters.
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def linked(path: Path) -> None:
    os.mkfifo(path.with_name("fifo"))
    path.symlink_to("fifo")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: path.mkdir(),
    "FIFO": os.mkfifo,
    "socket": listening,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "link to a FIFO": linked,
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_is_not_even_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    NO_FILES[kind](tmp_path / "it")
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *words: opened.append(words))
    with pytest.raises(UnfitFileError, match="it is not a file"):
        open_regular(tmp_path / "it")
    with pytest.raises(UnfitFileError, match="it is not a file"):
        read_regular(tmp_path / "it", limit=100)
    assert opened == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (None, "No such file or directory"),
        ("nowhere", "No such file or directory"),
        ("it", "Too many levels of symbolic links"),
        ("file/below", "Not a directory"),
    ],
)
def test_what_is_not_there_is_the_systems_own_error(tmp_path: Path, target: str | None, reason: str) -> None:
    (tmp_path / "file").touch()
    if target is not None:
        (tmp_path / "it").symlink_to(target)
    for opener in (open_regular, open_at_once):
        with pytest.raises(OSError, match=re.escape(str(tmp_path / "it"))) as caught:
            opener(tmp_path / "it")
        assert caught.value.strerror == reason


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_can_be_no_name_is_an_error_of_the_value(name: str) -> None:
    for opener in (open_regular, open_at_once):
        with pytest.raises(ValueError, match=r"null|surrogates"):
            opener(name)


def between_look_and_opening(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let somebody do something in the moment that nobody else would hit."""
    really = os.open

    def late(path: Path, flags: int) -> int:
        monkeypatch.setattr(os, "open", really)
        change()
        return os.open(path, flags)

    monkeypatch.setattr(os, "open", late)


def test_a_file_that_vanishes_meanwhile_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    between_look_and_opening(monkeypatch, path.unlink)
    with pytest.raises(FileNotFoundError):
        open_regular(path)


@pytest.mark.parametrize("kind", ["folder", "FIFO", "endless device", "link to a FIFO"])
def test_what_takes_a_files_name_meanwhile_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "file"
    path.touch()

    def change() -> None:
        path.unlink()
        NO_FILES[kind](path)

    between_look_and_opening(monkeypatch, change)
    with pytest.raises(OSError, match=r"it is not a file|Is a directory"):
        read_regular(path, limit=100)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("FIFO", "it can't be read: it is not a file."),
        ("too large", "it can't be read: it has more than 2 bytes."),
        ("nothing", "it can't be read: No such file or directory."),
        ("no name", r"'a\x00b' can't be the name of a file."),
    ],
)
def test_a_person_is_told_in_a_sentence_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("it").write_bytes(b"xyz")
    if kind in {"FIFO", "nothing"}:
        Path("it").unlink()
    if kind == "FIFO":
        os.mkfifo("it")
    with pytest.raises(UsageError) as caught:
        read_named("a\0b" if kind == "no name" else "it", limit=2, error=UsageError)
    assert caught.value.message == says


def test_a_fifo_can_be_held_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with open_at_once(tmp_path / "fifo") as stream:
        assert stream.read(1) == b""
    with pytest.raises(IsADirectoryError):
        open_at_once(tmp_path)
