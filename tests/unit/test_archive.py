"""Bundles that keep the contract, and files that can't be read as one."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import limits
from capsule_build.runtime.archive import (
    BundleReader,
    Kind,
    Member,
    check_bundle,
    extract_bundle,
    read_members,
)
from capsule_build.runtime.errors import UsageError
from capsule_build.runtime.tarheaders import encode
from tests import bundles
from tests.bundles import Entry, extended, file, folder, link, record, small_bundle
from tests.memory import peak_of
from tests.reading import bundle, read_all

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["bundle"]


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


@pytest.mark.slow
def test_memory_does_not_grow_with_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(small_bundle().add(file("share/big", os.urandom(24 << 20))).data())
    assert peak_of(lambda: check_bundle(path)) < 8 << 20


def test_an_extended_header_that_is_needed_is_taken() -> None:
    entry = Entry(LONG.encode()[:100], before=extended(record(b"path", LONG.encode())))
    _, members = read_all(small_bundle().add(entry).data())
    assert members[-1][0].name == LONG


def test_the_sbom_is_at_hand_after_reading() -> None:
    reader = BundleReader(io.BytesIO(small_bundle().data()))
    for _ in reader:
        pass
    assert json.dumps(reader.sbom) == json.dumps(bundles.SBOM)
