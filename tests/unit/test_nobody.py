"""Who does something as nobody has really lost root's rights."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.nobody import NOBODY, as_nobody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter and write to, as pytest's own isn't."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)


def test_what_is_everybodys_can_be_read(folder: Path) -> None:
    (folder / "file").write_text("everybody's")
    (folder / "file").chmod(0o644)
    assert as_nobody((folder / "file").read_text) == "everybody's"


ATTEMPTS: dict[str, Callable[[Path], object]] = {
    "read a file": lambda place: (place / "file").read_text(),
    "write to a file": lambda place: (place / "file").write_text("x"),
    "enter a folder": lambda place: (place / "folder/file").stat(),
    "write to a folder": lambda place: (place / "readable/new").touch(),
    "change a mode": lambda place: (place / "file").chmod(0o666),
    "give a file away": lambda place: os.chown(place / "file", NOBODY, NOBODY),
    "become root again": lambda _: os.setuid(0),
    "become root's group again": lambda _: os.setgid(0),
    "join a group": lambda _: os.setgroups([0]),
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_what_is_roots_alone_is_out_of_reach(folder: Path, attempt: str) -> None:
    (folder / "file").write_text("root's")
    (folder / "file").chmod(0o600)
    (folder / "folder").mkdir(0o700)
    (folder / "folder/file").touch()
    (folder / "readable").mkdir(0o755)

    def work() -> str:
        with pytest.raises(PermissionError):
            ATTEMPTS[attempt](folder)
        return "refused"

    assert as_nobody(work) == "refused"
    # This process is who it was.
    assert (os.getuid(), os.geteuid(), (folder / "file").read_text()) == (0, 0, "root's")


def test_a_group_of_roots_gives_no_right(folder: Path) -> None:
    (folder / "file").write_text("root's")
    (folder / "file").chmod(0o640)
    before = os.getgroups()
    try:
        os.setgroups([0, 42])
        os.chown(folder / "file", 0, 42)
        with pytest.raises(AssertionError, match="PermissionError"):
            as_nobody((folder / "file").read_text)
    finally:
        os.setgroups(before)


def test_what_fails_there_fails_here() -> None:
    def work() -> str:
        raise ValueError("why")

    with pytest.raises(AssertionError, match=r"ValueError\('why'\)"):
        as_nobody(work)


def test_who_is_killed_there_fails_here() -> None:
    def work() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    with pytest.raises(AssertionError, match="ended with -9"):
        as_nobody(work)
