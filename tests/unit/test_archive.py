"""Bundles that keep the contract, what is made of them on disk, and what becomes of damaged ones."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_build.runtime import limits
from capsule_build.runtime.archive import (
    BundleInfo,
    BundleReader,
    Kind,
    Member,
    check_bundle,
    extract_bundle,
    read_members,
)
from capsule_build.runtime.errors import CapsuleError, ContractError, UsageError
from capsule_build.runtime.rules import BundleError
from capsule_build.runtime.tarheaders import encode, padding
from tests import bundles
from tests.bundles import Entry, extended, file, folder, gzip, link, record, small_bundle
from tests.memory import peak_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "small.tar.gz"
    path.write_bytes(small_bundle().data())
    return path


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def read_all(data: bytes) -> tuple[BundleInfo, list[tuple[Member, bytes]]]:
    reader = BundleReader(io.BytesIO(data))
    members = [(member, content.read()) for member, content in reader]
    return reader.info, members


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


def test_a_small_bundle_keeps_the_contract(bundle: Path) -> None:
    data = bundle.read_bytes()
    assert len(data) <= 4096
    info = check_bundle(bundle)
    assert info.sha256 == hashlib.sha256(data).hexdigest()
    assert info.size == len(data)
    assert info.members == len(small_bundle().members)
    assert info.unpacked_bytes == sum(len(member.content) for member in small_bundle().members)
    assert info.manifest.runtime_id == "node24"
    assert str(info.manifest.platform) == "linux-x86_64-musl"
    assert dict(info.manifest.tools)["npm"] == "bin/npm"


def test_bundles_of_both_architectures_carry_their_own_loaders() -> None:
    document = bundles.manifest(
        platform={"os": "linux", "architecture": "aarch64", "libc": "glibc"},
        install_root="/tmp/agentcompass-capsules/node24-24.19.0-linux-aarch64-glibc",
    )
    info, _ = read_all(small_bundle(architecture="aarch64", document=document).data())
    assert info.manifest.platform.architecture == "aarch64"


def test_members_come_in_order_with_their_contents() -> None:
    _, members = read_all(small_bundle().data())
    assert members[0][0].name == bundles.MANIFEST
    assert [member.name for member, _ in members] == [
        entry.name.decode().rstrip("/") for entry in small_bundle().members
    ]
    assert [content for _, content in members] == [entry.content for entry in small_bundle().members]


def test_contents_that_are_not_read_are_skipped() -> None:
    names = [member.name for member, _ in read_members(io.BytesIO(small_bundle().data()))]
    assert names == [member.name for member, _ in read_all(small_bundle().data())[1]]


def test_nothing_is_said_before_the_end_of_a_bundle() -> None:
    reader = BundleReader(io.BytesIO(small_bundle().data()))
    with pytest.raises(ValueError, match="end"):
        _ = reader.info
    with pytest.raises(ValueError, match="SBOM"):
        _ = reader.sbom
    next(iter(reader))
    with pytest.raises(ValueError, match="end"):
        _ = reader.info


@pytest.mark.parametrize(
    "entries",
    [
        [link("l", "bin/node")],
        [link("l", "nowhere")],
        [link("bin/l", "../share/./licenses")],
        [link("bin/l", "../bin/../share/licenses/../..")],
        [link("later", "z/node"), link("z", "bin")],
        [link("bin/up", ".."), link("l", "bin/up/bin/up/bin")],
        [link("l0", "bin"), *(link(f"l{number}", f"l{number - 1}") for number in range(1, 40))],
        [file("share/empty"), file("share/a b", b"x" * 512), file("share/$(x);'\"", b"x" * 513)],
        [folder("share/empty")],
    ],
    ids=[
        "link to a file",
        "link to nothing",
        "link with a dot",
        "link to the root",
        "link to a later one",
        "link through others",
        "40 hops",
        "odd names",
        "an empty folder",
    ],
)
def test_what_the_contract_allows(entries: list[Entry], tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(small_bundle().add(*entries).data())
    assert check_bundle(path) == extract_bundle(path, tmp_path / "root")


@pytest.mark.parametrize("levels", [2, 64])
def test_names_up_to_the_bounds_are_taken(levels: int, tmp_path: Path) -> None:
    entries = [
        Member("/".join(["d"] * depth), Kind.DIRECTORY, 0o755, bundles.MTIME)
        for depth in range(1, levels + 1)
    ]
    entries[-1] = Member(f"{entries[-2].name}/{'n' * 255}", Kind.FILE, 0o644, bundles.MTIME)
    blocks = b"".join(encode(entry) for entry in entries)
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(small_bundle().add(Entry(b"share/x", before=blocks)).data())
    extract_bundle(path, tmp_path / "root")
    assert (tmp_path / "root" / entries[-1].name).is_file()
    assert len(entries[-1].name.split("/")) == levels <= limits.MAX_LEVELS


def test_a_tool_may_be_a_symlink_to_an_executable() -> None:
    npm = "../share/npm-cli.js"
    bundle = small_bundle().replace("bin/npm", link("bin/npm", npm))
    bundle.add(file("share/npm-cli.js", b"#!node\n", executable=True))
    info, _ = read_all(bundle.data())
    assert "npm" in info.manifest.tools


LONG = "share/" + "n" * 150
ODD = "share/ünï/日本"


def test_our_header_and_that_of_tarfile_are_the_same_bytes() -> None:
    members = [
        Member("bin", Kind.DIRECTORY, 0o755, bundles.MTIME),
        Member("bin/node", Kind.FILE, 0o755, bundles.MTIME, size=123_456_789),
        Member("bin/npm", Kind.SYMLINK, 0o777, bundles.MTIME, target="../lib/npm"),
        Member(LONG, Kind.FILE, 0o644, 0, size=1),
        Member("d" * 99, Kind.DIRECTORY, 0o755, bundles.MTIME),
        Member("d" * 100, Kind.DIRECTORY, 0o755, bundles.MTIME),
        Member("f" * 100, Kind.FILE, 0o644, bundles.MTIME),
        Member("f" * 101, Kind.FILE, 0o644, bundles.MTIME),
        Member(ODD, Kind.FILE, 0o644, bundles.MTIME),
        Member("share/l", Kind.SYMLINK, 0o777, bundles.MTIME, target="é" * 80),
        Member(LONG, Kind.SYMLINK, 0o777, bundles.MTIME, target="t" * 101),
        *(
            Member("n" * length, Kind.FILE, 0o644, bundles.MTIME)
            for length in (985, 986, 987, 988, 989, 990, 991)
        ),
    ]
    types = {Kind.FILE: tarfile.REGTYPE, Kind.DIRECTORY: tarfile.DIRTYPE, Kind.SYMLINK: tarfile.SYMTYPE}
    for member in members:
        other = tarfile.TarInfo(member.name)
        other.type, other.mode, other.mtime = types[member.kind], member.mode, member.mtime
        other.size, other.linkname = member.size, member.target
        assert encode(member) == other.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"), member.name


def test_tarfile_reads_the_same_members() -> None:
    bundle = small_bundle()
    extra = [
        Member("share/ünï", Kind.DIRECTORY, 0o755, bundles.MTIME),
        Member(ODD, Kind.FILE, 0o644, bundles.MTIME),
        Member(LONG, Kind.SYMLINK, 0o777, bundles.MTIME, target="é"),
    ]
    bundle.add(Entry(b"share/last", before=b"".join(map(encode, extra))))
    _, members = read_all(bundle.data())
    with tarfile.open(fileobj=io.BytesIO(bundle.data()), mode="r:gz") as other:
        assert [
            (info.name, info.mode, info.size, info.linkname, info.mtime) for info in other.getmembers()
        ] == [(member.name, member.mode, member.size, member.target, member.mtime) for member, _ in members]


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


@pytest.mark.parametrize("read", [check_bundle, lambda path: extract_bundle(path, path.with_name("root"))])
def test_what_can_not_be_read_is_wrong_usage(read: object, tmp_path: Path) -> None:
    assert callable(read)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name, reason in (("missing", "No such file"), ("folder", "it is not a file"), ("fifo", "not a file")):
        with pytest.raises(UsageError, match=reason) as caught:
            read(tmp_path / name)
        assert caught.value.exit_code == 2
        assert name in caught.value.message


def test_an_unreadable_file_is_wrong_usage(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so the refusal is the system's answer, given by hand."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        check_bundle(bundle)


def test_a_bundle_that_becomes_unreadable_is_wrong_usage() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 0:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(100)

    with pytest.raises(UsageError, match="Input/output error"):
        list(read_members(Failing(small_bundle().data())))


def test_memory_does_not_grow_with_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(small_bundle().add(file("share/big", os.urandom(24 << 20))).data())
    assert peak_of(lambda: check_bundle(path)) < 8 << 20


def test_every_flipped_bit_is_refused_or_harmless() -> None:
    """Harmless: the same members with the same contents come out.

    Some do so: deflate may copy a run of zeros from here or from there, and XFL may say one thing or another.
    """
    data = small_bundle().data()
    info, members = read_all(data)
    harmless = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            other, found = read_all(bytes(flipped))
        except ContractError:
            continue
        assert found == members
        assert other.manifest == info.manifest
        assert other.sha256 != info.sha256
        harmless += 1
    assert harmless < len(data) // 10


def test_every_flipped_bit_of_a_tar_is_refused_or_only_content() -> None:
    """Under a right gzip all bits of headers are held; what a content says is its own affair."""
    tar = small_bundle().tar()
    contents = {place for place, kind in enumerate(_kinds(small_bundle())) if kind == "content"}
    for place in range(0, len(tar), 7):
        if place // bundles.BLOCK in contents:
            continue
        flipped = bytearray(tar)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ContractError):
            read_all(gzip(bytes(flipped), level=1))


def _kinds(bundle: bundles.Bundle) -> list[str]:
    """What each block of a bundle's tar is."""
    kinds: list[str] = []
    for member in bundle.members:
        kinds += ["header"] + ["content"] * ((len(member.blocks()) - 1) // bundles.BLOCK)
    return kinds


@settings(max_examples=300)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 20_000), st.binary(max_size=12), st.integers(0, 12)), min_size=1, max_size=4
    )
)
def test_random_edits_of_the_packed_bytes_are_refused_or_change_nothing(
    edits: list[tuple[int, bytes, int]],
) -> None:
    data = small_bundle().data()
    edited = _edit(data, edits)
    try:
        _, members = read_all(edited)
    except ContractError:
        return
    assert members == read_all(data)[1]


@settings(max_examples=300)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 20_000), st.binary(max_size=12), st.integers(0, 12)), min_size=1, max_size=4
    )
)
def test_random_edits_of_the_tar_are_refused_or_read_as_tarfile_reads_them(
    edits: list[tuple[int, bytes, int]],
) -> None:
    edited = gzip(_edit(small_bundle().tar(), edits), level=1)
    try:
        _, members = read_all(edited)
    except ContractError:
        return
    with tarfile.open(fileobj=io.BytesIO(edited), mode="r:gz") as other:
        assert [(info.name, info.size, info.linkname) for info in other] == [
            (member.name, member.size, member.target) for member, _ in members
        ]


def _edit(data: bytes, edits: list[tuple[int, bytes, int]]) -> bytes:
    """Put other bytes in the place of some; places beyond the end count round."""
    for place, put, taken in edits:
        start = place % (len(data) + 1)
        data = data[:start] + put + data[start + taken :]
    return data


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
entries = st.one_of(
    names.map(lambda name: Member(f"share/{name}", Kind.FILE, 0o644, bundles.MTIME, size=3)),
    names.map(lambda name: Member(f"share/{name}", Kind.DIRECTORY, 0o755, bundles.MTIME)),
    st.tuples(names, names).map(
        lambda pair: Member(f"share/{pair[0]}", Kind.SYMLINK, 0o777, bundles.MTIME, target=pair[1])
    ),
)


@settings(max_examples=200)
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


def test_an_extended_header_that_is_needed_is_taken() -> None:
    entry = Entry(LONG.encode()[:100], before=extended(record(b"path", LONG.encode())))
    _, members = read_all(small_bundle().add(entry).data())
    assert members[-1][0].name == LONG


def test_the_sbom_is_at_hand_after_reading() -> None:
    reader = BundleReader(io.BytesIO(small_bundle().data()))
    for _ in reader:
        pass
    assert json.dumps(reader.sbom) == json.dumps(bundles.SBOM)
