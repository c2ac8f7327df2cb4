"""What is made of bundles on disk, and that nothing is where that fails."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_build.runtime.archive import Kind, Member, check_bundle, extract_bundle
from capsule_build.runtime.errors import CapsuleError, ContractError, UsageError
from capsule_build.runtime.rules import BundleError
from capsule_build.runtime.tarheaders import encode, padding
from tests import bundles
from tests.bundles import Entry, file, link, small_bundle
from tests.examples import examples
from tests.reading import bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bundle"]


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def tree_of(root: Path) -> dict[str, tuple[int, object]]:
    """What a folder holds: for each name its mode, and its content, target or time."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        what: object = int(status.st_mtime)
        if path.is_symlink():
            what = str(path.readlink())
        elif path.is_file():
            what = path.read_bytes()
        found[str(path.relative_to(root))] = (status.st_mode, what)
    return found


def test_extraction_makes_what_the_bundle_holds(tmp_path: Path, umask: int) -> None:
    bundle = small_bundle().add(link("share/l", "../bin/node"), file("share/big", os.urandom(3_000_000)))
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(bundle.data())
    root = tmp_path / "root"
    assert extract_bundle(path, root) == check_bundle(path)

    expected: dict[str, tuple[int, object]] = {}
    for entry in bundle.members:
        name = entry.name.decode().rstrip("/")
        mode = int(entry.mode[:-1], 8)
        if entry.type == b"5":
            expected[name] = (stat.S_IFDIR | mode, bundles.MTIME)
        elif entry.type == b"2":
            expected[name] = (stat.S_IFLNK | 0o777, entry.target.decode())
        else:
            expected[name] = (stat.S_IFREG | mode, entry.content)
    assert tree_of(root) == expected
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert {int(path.lstat().st_mtime) for path in root.rglob("*")} == {bundles.MTIME}


def test_extraction_takes_no_folder_that_exists(bundle: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine").write_text("mine")
    with pytest.raises(UsageError, match="exists") as caught:
        extract_bundle(bundle, root)
    assert caught.value.exit_code == 2
    assert (root / "mine").read_text() == "mine"


def test_extraction_goes_through_no_symlink_in_the_place_of_its_folder(bundle: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "root").symlink_to(elsewhere)
    with pytest.raises(UsageError, match="exists"):
        extract_bundle(bundle, tmp_path / "root")
    assert list(elsewhere.iterdir()) == []


def test_extraction_needs_the_parent_folder(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be made"):
        extract_bundle(bundle, tmp_path / "missing" / "root")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_extraction_that_is_stopped_leaves_nothing(
    stop: BaseException, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    write = os.write

    def stopping(handle: int, data: bytes) -> int:
        written.append(write(handle, data))
        if len(written) == 5:
            raise stop
        return written[-1]

    monkeypatch.setattr("capsule_build.runtime.archive.os.write", stopping)
    with pytest.raises(KeyboardInterrupt if isinstance(stop, KeyboardInterrupt) else CapsuleError) as caught:
        extract_bundle(bundle, tmp_path / "root")
    assert isinstance(stop, KeyboardInterrupt) or "No space left on device" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [bundle.name]


def test_extraction_leaves_no_descriptor_open(bundle: Path, tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    extract_bundle(bundle, tmp_path / "root")
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(small_bundle().add(file("share/../x")).data())
    with pytest.raises(BundleError):
        extract_bundle(broken, tmp_path / "other")
    assert count() == before


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
entries = st.one_of(
    names.map(lambda name: Member(f"share/{name}", Kind.FILE, 0o644, bundles.MTIME, size=3)),
    names.map(lambda name: Member(f"share/{name}", Kind.DIRECTORY, 0o755, bundles.MTIME)),
    st.tuples(names, names).map(
        lambda pair: Member(f"share/{pair[0]}", Kind.SYMLINK, 0o777, bundles.MTIME, target=pair[1])
    ),
)


@settings(max_examples=examples(200))
@given(members=st.lists(entries, max_size=6))
def test_whatever_is_extracted_stays_inside(
    members: list[Member], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("place")
    before = b"".join(encode(member) + (b"abc" + padding(3) if member.size else b"") for member in members)
    path = place / "bundle.tar.gz"
    path.write_bytes(small_bundle().add(Entry(b"zz", before=before)).data())
    root = place / "root"
    try:
        extract_bundle(path, root)
    except ContractError:
        assert not root.exists()
    else:
        found = {str(item.relative_to(root)) for item in root.rglob("*")}
        # NULs at a name's end are the field's own filling: they never were part of the name.
        assert {member.name.rstrip("\0") for member in members} <= found
        assert all(item.resolve().is_relative_to(root) for item in root.rglob("*"))
    assert {item.name for item in place.iterdir()} <= {"bundle.tar.gz", "root"}
