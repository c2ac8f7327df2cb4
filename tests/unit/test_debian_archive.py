"""Single files come out of Debian packages, and a damaged package is an error of the input."""

from __future__ import annotations

import contextlib
import gzip
import lzma
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_build import debian_archive
from capsule_build.debian_archive import control_field, read_member
from capsule_build.runtime.errors import InputError
from tests import archives
from tests.examples import examples

if TYPE_CHECKING:
    from pathlib import Path

CONTROL = "Package: busybox\nVersion: 1:1.37.0-6+b9\nDescription: a shell\n Version: 9\n"
GOOD = archives.deb({"usr/bin/busybox": b"ELF", "usr/share/doc": b""}, control=CONTROL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "p.deb"
    path.write_bytes(GOOD)
    return path


@pytest.mark.parametrize("compression", ["xz", "gz", ""])
def test_a_file_and_a_field_are_read(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "p.deb"
    path.write_bytes(archives.deb({"usr/bin/busybox": b"ELF"}, control=CONTROL, compression=compression))
    assert read_member(path, "usr/bin/busybox") == b"ELF"
    assert control_field(path, "Version") == "1:1.37.0-6+b9"


def test_members_of_an_odd_size_are_passed(tmp_path: Path) -> None:
    path = tmp_path / "p.deb"
    path.write_bytes(archives.deb({"f": b"x"}, before=archives.ar_member("_odd", b"abc")))
    assert read_member(path, "f") == b"x"


def test_what_is_not_in_it_is_named(package: Path) -> None:
    with pytest.raises(InputError, match=r"p\.deb.*usr/bin/other"):
        read_member(package, "usr/bin/other")
    with pytest.raises(InputError, match=r"p\.deb has no field Homepage"):
        control_field(package, "Homepage")


def test_a_field_is_found_at_the_start_of_a_line_only(tmp_path: Path) -> None:
    path = tmp_path / "p.deb"
    path.write_bytes(archives.deb({}, control="Package: x\nXVersion: 8\n Version: 9\n"))
    with pytest.raises(InputError, match="has no field Version"):
        control_field(path, "Version")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"!<arch>\n",
        b"PK\x03\x04" + bytes(100),
        b"!<arch>\n" + archives.ar_member("debian-binary", b"2.0\n"),
        b"!<arch>\n" + archives.ar_member("data.tar.xz", b"no archive"),
        b"!<arch>\n" + archives.ar_member("data.tar.xz", b""),
        b"!<arch>\n" + archives.ar_member("data.tar", b"", size="x"),
        b"!<arch>\n" + archives.ar_member("data.tar", b"", size=str(65 << 20)),
        b"!<arch>\n" + archives.ar_member("other", b"", size="-60") + archives.ar_member("data.tar", b""),
        b"!<arch>\n" + archives.ar_member("data.tar", bytes(2048), size="-1"),
        b"!<arch>\n" + b"x" * 60,
        b"!<arch>\n" + archives.ar_member("data.tar.gz", gzip.compress(bytes(10240), mtime=0)[:-20]),
        b"!<arch>\n" + archives.ar_member("data.tar.xz", lzma.compress(bytes(10240))[:-20]),
        GOOD[:-200],
    ],
)
def test_what_is_not_a_package_is_an_error_of_the_input(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "p.deb"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"p\.deb is not a Debian package with a file usr/bin/busybox"):
        read_member(path, "usr/bin/busybox")


def test_a_link_in_the_place_of_the_file_leads_nowhere_outside(tmp_path: Path) -> None:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("./usr/bin/busybox")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    path = tmp_path / "p.deb"
    path.write_bytes(b"!<arch>\n" + archives.ar_member("data.tar", out.getvalue()))
    with pytest.raises(InputError, match=r"p\.deb"):
        read_member(path, "usr/bin/busybox")


def test_damage_inside_of_a_compressed_file_is_an_error_of_the_input(tmp_path: Path) -> None:
    path = tmp_path / "p.deb"
    text = b"".join(b"%d %x;" % (number, number * 7919) for number in range(2000))
    good = archives.deb({"usr/bin/busybox": text}, compression="gz")
    for place in range(len(good) // 2, len(good), 97):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        # What lies behind the file isn't looked at; a pinned package's digest has been checked before.
        with contextlib.suppress(InputError):
            read_member(path, "usr/bin/busybox")


def test_what_is_too_large_is_not_read(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_archive, "_MAX_ARCHIVE_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        read_member(package, "usr/bin/busybox")


@settings(max_examples=examples(150))
@given(
    place=st.integers(0, len(GOOD) - 1),
    byte=st.integers(0, 255),
    cut=st.integers(0, len(GOOD)),
    compression=st.sampled_from(["xz", "gz"]),
)
def test_any_damage_is_an_error_of_the_input(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int, compression: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.deb"
    data = bytearray(archives.deb({"usr/bin/busybox": b"ELF"}, control=CONTROL, compression=compression))
    data[place % len(data)] = byte
    path.write_bytes(data if cut % 3 else data[:cut])
    for read in (lambda: read_member(path, "usr/bin/busybox"), lambda: control_field(path, "Version")):
        with contextlib.suppress(InputError):
            read()
