from __future__ import annotations

import io
import os
import socket
import tarfile
from typing import TYPE_CHECKING

import pytest

from capsule_build.engine.context import stream_context
from capsule_build.runtime.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def members(folder: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream_context(folder)))) as archive:
        return {member.name: member for member in archive}


def test_a_context_holds_the_files_and_nothing_of_their_owners_times_or_umask(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir(mode=0o700)
    (tmp_path / "sub/tool").write_bytes(b"x" * 700)
    (tmp_path / "sub/tool").chmod(0o711)
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / "Dockerfile").chmod(0o600)
    (tmp_path / "link").symlink_to("sub/tool")
    os.utime(tmp_path / "Dockerfile", (5, 5))
    found = members(tmp_path)
    assert list(found) == ["Dockerfile", "link", "sub", "sub/tool"]
    assert {name: oct(member.mode) for name, member in found.items() if not member.issym()} == {
        "Dockerfile": "0o644",
        "sub": "0o755",
        "sub/tool": "0o755",
    }
    assert found["link"].linkname == "sub/tool"
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in found.values()} == {
        (0, 0, "", 315532800)
    }


def test_hard_links_are_sent_as_files_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert all(member.isfile() and member.size == 7 for member in members(tmp_path).values())


def test_names_that_are_long_or_not_ascii_arrive_whole(tmp_path: Path) -> None:
    name = "ä" * 60 + "x" * 100
    (tmp_path / name).write_bytes(b"1")
    assert list(members(tmp_path)) == [name]


def test_what_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        with pytest.raises(UsageError, match="sock' is neither"):
            list(stream_context(tmp_path))


def test_a_file_that_shrinks_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * (3 << 20))
    stream = stream_context(tmp_path)
    next(stream)
    os.truncate(path, 100)
    with pytest.raises(UsageError, match="f' changed"):
        list(stream)
