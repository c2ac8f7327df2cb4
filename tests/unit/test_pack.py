"""The same bytes from the same tree, and a bundle that keeps the contract."""

from __future__ import annotations

import gzip
import hashlib
import io
import locale
import os
import resource
import shutil
import stat
import tarfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capsule_build.pack import Packed, pack
from capsule_build.runtime.archive import check_bundle, extract_bundle
from capsule_build.runtime.manifest import FILE_NAME
from tests.examples import examples
from tests.memory import peak_of
from tests.packs import EPOCH, contract_tree, packed, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["tree"]

GOLDEN = "3d99ec1fac07e079e4b9d3b4cda4a2932c0f9c74aaac1584ec691624308a289b"
GOLDEN_TAR = "1220aba5e1d037ec324733abfd4434b510b8834b635f9144c68c31eb594c37bf"


def members(data: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return archive.getmembers()


def test_the_bytes_are_what_they_were(tree: Path) -> None:
    # A change here changes every bundle's digest: the registry lock has to be regenerated with it.
    assert hashlib.sha256(gzip.decompress(packed(tree))).hexdigest() == GOLDEN_TAR
    assert hashlib.sha256(packed(tree)).hexdigest() == GOLDEN


def test_what_is_packed_keeps_the_contract(tree: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    with bundle.open("wb") as out:
        result = pack(tree, out, epoch=EPOCH)
    info = check_bundle(bundle)
    assert result == Packed(info.sha256, info.size, info.members)
    assert info.size == bundle.stat().st_size
    assert info.sha256 == hashlib.sha256(bundle.read_bytes()).hexdigest()
    assert info.members == len(list(tree.rglob("*")))


def test_the_manifest_is_first_and_the_rest_is_sorted_by_bytes(tree: Path) -> None:
    (tree / "Zebra").write_bytes(b"")
    (tree / "a-b").mkdir()
    (tree / "a").mkdir()
    (tree / "a" / "x").write_bytes(b"")
    (tree / "ä").write_bytes(b"")
    names = [member.name for member in members(packed(tree))]
    assert names[0] == FILE_NAME
    assert names.count(FILE_NAME) == 1
    assert names[1:] == sorted(names[1:], key=str.encode)
    assert names.index("a") < names.index("a/x")
    assert names[1] == "Zebra"


def test_members_carry_nothing_of_the_machine(tree: Path) -> None:
    for member in members(packed(tree)):
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert member.mtime == EPOCH
        expected = {tarfile.DIRTYPE: {0o755}, tarfile.SYMTYPE: {0o777}, tarfile.REGTYPE: {0o644, 0o755}}
        assert member.mode in expected[member.type]


def test_the_gzip_header_is_bare(tree: Path) -> None:
    assert packed(tree)[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def test_the_gzip_trailer_is_right_and_nothing_follows(tree: Path) -> None:
    data = packed(tree)
    assert len(gzip.decompress(data)) % tarfile.RECORDSIZE == 0
    # A second member, or anything else behind the first, would be read by gzip as well, or refused.
    assert int.from_bytes(data[-4:], "little") == len(gzip.decompress(data))


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666, 0o4644, 0o2644])
def test_a_plain_file_is_0644(tree: Path, mode: int) -> None:
    (tree / "share" / "block").chmod(mode)
    assert hashlib.sha256(packed(tree)).hexdigest() == GOLDEN


@pytest.mark.parametrize("mode", [0o700, 0o744, 0o4755, 0o6711, 0o777, 0o1755])
def test_a_program_is_0755(tree: Path, mode: int) -> None:
    (tree / "bin" / "node").chmod(mode)
    assert hashlib.sha256(packed(tree)).hexdigest() == GOLDEN


def umask_077(tree: Path) -> Path:
    before = os.umask(0o077)
    try:
        return contract_tree(tree.parent / "again")
    finally:
        os.umask(before)


def other_order(tree: Path) -> Path:
    """The same files, made the other way round: inode numbers and the folders' own order differ."""
    copy = tree.parent / "copy"
    copy.mkdir()
    for path in sorted(tree.rglob("*"), reverse=True):
        target = copy / path.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copy(path, target)
    return copy


def other_times(tree: Path) -> Path:
    for number, path in enumerate(tree.rglob("*")):
        os.utime(path, (number, 2_000_000_000 + number), follow_symlinks=False)
    return tree


def hard_links(tree: Path) -> Path:
    path = tree / "bin" / "npm"
    assert path.read_bytes() == (tree / "bin" / "npx").read_bytes()
    path.unlink()
    path.hardlink_to(tree / "bin" / "npx")
    return tree


def other_owner(tree: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for path in tree.rglob("*"):
        os.chown(path, 1234, 4321, follow_symlinks=False)
    return tree


def folder_modes(tree: Path) -> Path:
    (tree / "share").chmod(0o2777)
    (tree / "bin").chmod(0o700)
    return tree


@pytest.mark.parametrize(
    "change", [umask_077, other_order, other_times, hard_links, other_owner, folder_modes]
)
def test_how_a_tree_was_written_does_not_matter(tree: Path, change: Callable[[Path], Path]) -> None:
    assert hashlib.sha256(packed(change(tree))).hexdigest() == GOLDEN


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Another time zone, language, working folder, umask and ambient epoch."""
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("LANG", "tr_TR.UTF-8")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("TAPE", "/nowhere")
    monkeypatch.chdir(tmp_path)
    time.tzset()
    before = os.umask(0o077)
    language = locale.setlocale(locale.LC_ALL)
    locale.setlocale(locale.LC_ALL, "C")
    yield
    locale.setlocale(locale.LC_ALL, language)
    os.umask(before)
    monkeypatch.delenv("TZ")
    time.tzset()


@pytest.mark.usefixtures("elsewhere")
def test_where_a_tree_is_packed_does_not_matter(tree: Path) -> None:
    assert hashlib.sha256(packed(tree)).hexdigest() == GOLDEN
    assert hashlib.sha256(packed(Path("tree"))).hexdigest() == GOLDEN


def test_the_time_is_the_given_one(tree: Path) -> None:
    assert {member.mtime for member in members(packed(tree, epoch=0))} == {0}
    assert packed(tree, epoch=1) != packed(tree, epoch=2)


def test_how_the_reads_fall_does_not_matter(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "share" / "noise").write_bytes(os.urandom(3_000_000))
    whole = packed(tree)
    opened = Path.open

    class Short(io.RawIOBase):
        """A file that gives less than it is asked for, as a slow file system may."""

        def __init__(self, stream: IO[bytes]) -> None:
            self.stream = stream

        def read(self, size: int = -1) -> bytes:
            return self.stream.read(min(size, 77_777))

        def close(self) -> None:
            self.stream.close()
            super().close()

    monkeypatch.setattr(Path, "open", lambda self, _mode: Short(opened(self, "rb")))
    assert packed(tree) == whole


def test_progress_counts_the_bytes_of_the_tree(tree: Path) -> None:
    counted: list[int] = []
    pack(tree, io.BytesIO(), epoch=0, advanced=counted.append)
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    assert sum(counted) == sum(path.stat().st_size for path in files)


class Drain(io.RawIOBase):
    """A file that forgets what is written."""

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        return len(data)


def test_memory_does_not_grow_with_the_tree(tree: Path) -> None:
    with (tree / "share" / "large").open("wb") as stream:
        stream.truncate(300 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = peak_of(lambda: pack(tree, Drain(), epoch=0))  # type: ignore[arg-type]  # only written to
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert peak < 32 << 20
    assert grown < 64 << 10  # kilobytes


NAMES = st.text(alphabet="aäb.-_ é中", min_size=1, max_size=6).filter(lambda name: name.strip(".") == name)
LEAVES = st.one_of(
    st.binary(max_size=1100),
    st.tuples(st.binary(max_size=10), st.just("runs")),
    st.integers(510, 514).map(bytes),
)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=4),
    lambda inner: st.dictionaries(NAMES, inner | LEAVES, max_size=3),
    max_leaves=8,
)


def write(folder: Path, content: dict[str, object]) -> None:
    folder.mkdir()
    for name, value in content.items():
        path = folder / name
        if isinstance(value, dict):
            write(path, value)
        elif isinstance(value, tuple):
            path.write_bytes(value[0])
            path.chmod(0o755)
        else:
            assert isinstance(value, bytes)
            path.write_bytes(value)
            path.chmod(0o644)


def listing(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        content = b"" if path.is_dir() else path.read_bytes()
        found[path.relative_to(folder).as_posix()] = (mode, content)
    return found


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=TREES)
def test_what_is_packed_is_what_is_unpacked(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, object]
) -> None:
    place = tmp_path_factory.mktemp("any")
    tree = contract_tree(place / "tree", zeros=0)
    write(tree / "any", content)
    bundle = place / "b.tar.gz"
    with bundle.open("wb") as out:
        result = pack(tree, out, epoch=EPOCH)
    assert extract_bundle(bundle, place / "out").sha256 == result.sha256
    assert listing(place / "out") == listing(tree)
    shutil.rmtree(place)
