"""Folders and archives as a tar for an environment: what is kept, and what is refused."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.errors import InputError
from capsule_build.runtime.uploading import tree_tar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def members(source: Path) -> dict[str, tuple[bytes, int, str, bytes]]:
    """What the tar of a source holds: for each name its type, mode, link target and content."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(tree_tar(source, 12, 34)))) as archive:
        found = {}
        for member in archive:
            assert (member.uid, member.gid) == (12, 34)
            content = archive.extractfile(member) if member.isreg() else None
            data = content.read() if content else b""
            found[member.name] = (member.type, member.mode, member.linkname, data)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "lib/deep").mkdir(parents=True)
    (tree / "bin").mkdir()
    (tree / "lib/agent.js").write_text("//")
    (tree / "lib/agent.js").chmod(0o4750)
    (tree / "lib/deep" / ("ü" * 90)).write_bytes(os.urandom(3_000_000))
    (tree / "bin/agent").symlink_to("../lib/agent.js")
    for folder in (tree, tree / "lib", tree / "lib/deep", tree / "bin"):
        folder.chmod(0o755)
    return tree


def packed_tar(tree: Path) -> Path:
    path = tree.with_name("tree.tar.xz")
    with tarfile.open(path, "w:xz", preset=0) as archive:
        archive.add(tree, ".")
    return path


def packed_zip(tree: Path) -> Path:
    path = tree.with_name("tree.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for item in sorted(tree.rglob("*")):
            name = str(item.relative_to(tree))
            if item.is_symlink():
                entry = zipfile.ZipInfo(name)
                entry.external_attr = 0o120777 << 16
                archive.writestr(entry, os.readlink(item))  # noqa: PTH115 (as it stands)
            else:
                archive.write(item, name)
    return path


@pytest.mark.parametrize("pack", [lambda tree: tree, packed_tar, packed_zip], ids=["folder", "tar.xz", "zip"])
def test_a_tree_arrives_as_it_is(tree: Path, pack: Callable[[Path], Path]) -> None:
    long = f"lib/deep/{'ü' * 90}"
    assert members(pack(tree)) == {
        "bin": (b"5", 0o755, "", b""),
        "bin/agent": (b"2", 0o777, "../lib/agent.js", b""),
        "lib": (b"5", 0o755, "", b""),
        # The set-user-id bit goes.
        "lib/agent.js": (b"0", 0o750, "", b"//"),
        "lib/deep": (b"5", 0o755, "", b""),
        long: (b"0", 0o644, "", (tree / long).read_bytes()),
    }


def test_a_hard_link_becomes_a_file(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("content")
    os.link(tmp_path / "one", tmp_path / "other")
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as archive:
        for name in ("one", "other"):
            archive.add(tmp_path / name, name)
        assert archive.getmembers()[1].islnk()
    assert members(path)["other"] == (b"0", 0o644, "", b"content")


def archive_of(path: Path, *entries: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([entry("../x")], "leads out of the tree"),
        ([entry("/etc/passwd")], "leads out of the tree"),
        ([entry("a/../../x")], "leads out of the tree"),
        ([entry("a\\b")], "leads out of the tree"),
        ([entry("dev", tarfile.CHRTYPE)], "neither a file, a folder nor a symlink"),
        ([entry("pipe", tarfile.FIFOTYPE)], "neither a file, a folder nor a symlink"),
        ([entry("out", tarfile.SYMTYPE, "/etc"), entry("out/passwd")], "lies behind a symlink"),
        ([entry("out", tarfile.SYMTYPE, "/etc/passwd"), entry("out")], "lies behind a symlink"),
        ([], "nothing is in it"),
    ],
)
def test_what_could_write_elsewhere_is_refused(
    tmp_path: Path, entries: list[tarfile.TarInfo], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        members(archive_of(tmp_path / "bad.tar", *entries))


def test_a_socket_in_a_folder_and_a_broken_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder/pipe")
    with pytest.raises(InputError, match="neither a file"):
        members(tmp_path / "folder")
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8bnothing of the kind")
    with pytest.raises(InputError, match="can't be uploaded"):
        members(tmp_path / "broken.tar.gz")
    with pytest.raises(InputError, match="can't be uploaded"):
        members(tmp_path / "none")
