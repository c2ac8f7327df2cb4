"""What an engine copies out is written below one folder, and nowhere else."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capsule_build.collect import collect
from capsule_build.runtime.errors import CapsuleError, ContractError
from tests import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def stream(*members: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes]) -> Iterator[bytes]:
    """A tar with members as they are given, in pieces of an odd size."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for entry in members:
            member, content = entry if isinstance(entry, tuple) else (entry, b"")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    data = out.getvalue()
    return (data[start : start + 777] for start in range(0, len(data), 777))


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def test_a_tree_is_written_without_the_streams_own_folder(tree: Path) -> None:
    files = {"bin/tool": b"x" * 5000, "share/a/b": b"", "top": b"t"}
    collect(fakes.tree_stream("node24-1", files, {"bin/link": "tool", "dangling": "nowhere"}), tree)
    found = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert found == files
    assert (tree / "bin" / "link").readlink() == Path("tool")
    assert (tree / "dangling").readlink() == Path("nowhere")


def test_only_whether_a_file_can_be_run_is_kept_of_its_mode(tree: Path) -> None:
    before = os.umask(0o077)
    try:
        collect(fakes.tree_stream("top", {"bin/tool": b"", "share/text": b""}, {}), tree)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tree / "bin" / "tool").stat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "share" / "text").stat().st_mode) == 0o644
    assert (tree / "bin" / "tool").stat().st_uid == os.getuid()


def test_hard_links_become_files_of_their_own(tree: Path) -> None:
    collect(
        stream(
            (member("top/first", mode=0o755), b"content"), member("top/second", tarfile.LNKTYPE, "top/first")
        ),
        tree,
    )
    assert (tree / "second").read_bytes() == b"content"
    assert (tree / "second").stat().st_ino != (tree / "first").stat().st_ino
    assert stat.S_IMODE((tree / "second").stat().st_mode) == 0o755


@pytest.mark.parametrize("name", ["/top/file", "top/../../file", "../file", "top/a/../../../file"])
def test_a_name_outside_is_refused(tree: Path, name: str) -> None:
    with pytest.raises(ContractError, match="outside of it"):
        collect(stream((member(name), b"x")), tree)
    assert list(tree.iterdir()) == []


def test_nothing_is_written_through_a_link(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(ContractError, match="top/link/file"):
        collect(
            stream(member("top/link", tarfile.SYMTYPE, str(outside)), (member("top/link/file"), b"x")), tree
        )
    assert list(outside.iterdir()) == []


def test_no_folder_is_made_through_a_link(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with pytest.raises(ContractError, match="top/a/link/deep"):
        collect(
            stream(
                member("top/a", tarfile.DIRTYPE),
                member("top/a/link", tarfile.SYMTYPE, "../../outside"),
                member("top/a/link/deep", tarfile.DIRTYPE),
            ),
            tree,
        )
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("target", ["/etc/hostname", "top/../../secret", "top/missing", "", "top", "top/dir"])
def test_a_hard_link_to_something_else_than_a_file_before_it_is_refused(
    tree: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with pytest.raises(ContractError, match="top/link"):
        collect(stream(member("top/dir", tarfile.DIRTYPE), member("top/link", tarfile.LNKTYPE, target)), tree)
    assert not (tree / "link").exists()


def test_a_hard_link_to_a_symbolic_link_reads_nothing_of_this_machine(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    collect(
        stream(
            member("top/link", tarfile.SYMTYPE, str(tmp_path / "secret")),
            member("top/again", tarfile.LNKTYPE, "top/link"),
        ),
        tree,
    )
    assert (tree / "again").readlink() == tmp_path / "secret"


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE])
def test_devices_and_the_like_are_refused(tree: Path, kind: bytes) -> None:
    with pytest.raises(ContractError, match="'top/odd' of a kind that a bundle can't hold"):
        collect(stream(member("top/odd", kind)), tree)


def test_a_stream_that_is_cut_off_is_damaged(tree: Path) -> None:
    data = b"".join(stream((member("top/file"), b"x" * 3000)))
    for length in (1, 100, 600, 2000):
        with pytest.raises(CapsuleError, match="is damaged"):
            collect(iter([data[:length]]), tree / ".." / "tree")
        for path in tree.iterdir():
            path.unlink()


def test_an_empty_stream_is_damaged(tree: Path) -> None:
    with pytest.raises(CapsuleError, match="is damaged"):
        collect(iter([]), tree)


def test_empty_pieces_do_not_end_a_stream(tree: Path) -> None:
    data = b"".join(stream((member("top/file"), b"content")))
    collect(iter([b"", data[:100], b"", b"", data[100:], b""]), tree)
    assert (tree / "file").read_bytes() == b"content"


@settings(max_examples=40)
@example(names=[("top/a", tarfile.SYMTYPE, ".."), ("top/a/b", tarfile.REGTYPE, "")])
@example(names=[("top/a", tarfile.SYMTYPE, ".."), ("top/a/b", tarfile.DIRTYPE, "")])
@example(names=[("top/a", tarfile.SYMTYPE, "a"), ("top/a/b", tarfile.REGTYPE, "")])
@given(
    names=st.lists(
        st.tuples(
            st.sampled_from(["top/a", "top/a/b", "top/a/b/c", "top/b", "top", "top/../x", "/x", "a/./b"]),
            st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
            st.sampled_from(["..", "a", "../..", "top/a", "top/a/b", "/", "../outside"]),
        ),
        max_size=6,
    )
)
def test_no_stream_reaches_outside(
    tmp_path_factory: pytest.TempPathFactory, names: list[tuple[str, bytes, str]]
) -> None:
    place = tmp_path_factory.mktemp("any")
    (place / "tree").mkdir()
    (place / "outside").mkdir()
    members = [member(name, kind, target) for name, kind, target in names]
    with contextlib.suppress(CapsuleError):
        collect(stream(*members), place / "tree")
    assert sorted(path.name for path in place.iterdir()) == ["outside", "tree"]
    assert list((place / "outside").iterdir()) == []
