from __future__ import annotations

import lzma
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_build.fetch import debian
from capsule_build.fetch.debian_version import sort_key
from capsule_build.fetch.location import Location
from capsule_build.fetch.transfer import NotThereError, Transfer, WrongFileError
from capsule_build.pins import Pin
from capsule_build.runtime.errors import InputError, UsageError
from capsule_build.runtime.files import sha256_file
from capsule_build.runtime.process import run
from tests.examples import examples
from tests.servers import body, isolate, serve

DATA = Path(__file__).parents[1] / "data" / "debian"
DEB = DATA / "mirror/pool/main/h/hello/hello_2.10-3_amd64.deb"
DPKG = shutil.which("dpkg")
needs_gpgv = pytest.mark.skipif(shutil.which("gpgv") is None, reason="gpgv is not installed")


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)
    monkeypatch.setattr(debian, "_indexes", {})


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Debian mirror of one package, signed by a key of its own."""
    copy = tmp_path / "mirror"
    shutil.copytree(DATA / "mirror", copy)
    monkeypatch.setenv("CAPSULE_DEBIAN_MIRROR", str(copy))
    monkeypatch.setenv("CAPSULE_DEBIAN_KEYRING", str(DATA / "archive.gpg"))
    return copy


@pytest.fixture
def transfer(tmp_path: Path) -> Transfer:
    (tmp_path / "staging").mkdir()
    return Transfer(tmp_path / "staging")


ORDERED = [
    "0~~", "0~~a", "0~", "0", "0a", "0+", "1.0~rc1-1", "1.0-1~deb13u1", "1.0-1", "1.0-1+b1", "1.0-1+deb13u1",
    "1.0-1.1", "1.0-2", "1.0-10", "1.0a-1", "1.0+dfsg-1", "1.0.1-1", "1.2-3", "1.10-1", "2.41-12",
    "2.41-12+deb13u5", "10-1", "1:0.1", "1:1.3.dfsg+really1.3.1-1", "1:1.3.dfsg+really1.3.1-1+b1", "2:0",
]  # fmt: skip


def test_versions_are_ordered_as_the_policy_says() -> None:
    keys = [sort_key(version) for version in ORDERED]
    for number, key in enumerate(keys):
        assert all(other < key for other in keys[:number])
        assert all(other > key for other in keys[number + 1 :])


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1-0"), ("1", "0:1"), ("1.0", "1."), ("01", "1"), ("1-", "1")]
)
def test_some_versions_are_the_same(one: str, other: str) -> None:
    assert sort_key(one) == sort_key(other)


@pytest.mark.parametrize("text", ["", "a:1", "1 2", "1_2", "1\n", ":1", "ü"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        sort_key(text)


VERSION = st.from_regex(r"([01]:)?[0-9][019ab.+~]{0,6}(-[019ab.+~]{1,4})?", fullmatch=True)


@pytest.mark.slow
@pytest.mark.skipif(DPKG is None, reason="dpkg is not installed")
@settings(max_examples=examples(400))
@given(VERSION, VERSION)
def test_versions_are_ordered_as_dpkg_orders_them(one: str, other: str) -> None:
    left, right = sort_key(one), sort_key(other)
    mine = "lt" if left < right else "gt" if left > right else "eq"
    assert run(["dpkg", "--compare-versions", one, mine, other], check=False).code == 0


@needs_gpgv
def test_the_highest_version_is_found_by_the_signed_index(mirror: Path, transfer: Transfer) -> None:
    found = debian.find("hello", "trixie", "amd64", transfer)
    assert (found.version, found.file) == ("2.10-3", "hello_2.10-3_amd64.deb")
    assert found.locator == "pool/main/h/hello/hello_2.10-3_amd64.deb"
    assert found.size == DEB.stat().st_size


@needs_gpgv
def test_an_index_is_read_once_in_a_process(mirror: Path, transfer: Transfer) -> None:
    first = debian.find("hello", "trixie", "amd64", transfer)
    shutil.rmtree(mirror / "dists")
    assert debian.find("hello", "trixie", "amd64", transfer) == first


@needs_gpgv
def test_the_index_is_taken_by_its_digest_where_the_mirror_has_it_so(
    mirror: Path, transfer: Transfer
) -> None:
    folder = mirror / "dists/trixie/main/binary-amd64"
    digest = sha256_file(folder / "Packages.xz")
    (folder / "by-hash/SHA256").mkdir(parents=True)
    (folder / "Packages.xz").rename(folder / "by-hash/SHA256" / digest)
    assert debian.find("hello", "trixie", "amd64", transfer).version == "2.10-3"


@needs_gpgv
def test_a_changed_index_is_refused(mirror: Path, transfer: Transfer) -> None:
    packages = mirror / "dists/trixie/main/binary-amd64/Packages.xz"
    data = bytearray(packages.read_bytes())
    data[-40] ^= 1
    packages.write_bytes(data)
    with pytest.raises(WrongFileError, match="but the signed InRelease says"):
        debian.find("hello", "trixie", "amd64", transfer)


@needs_gpgv
def test_a_changed_release_is_refused(mirror: Path, transfer: Transfer) -> None:
    release = mirror / "dists/trixie/InRelease"
    release.write_bytes(release.read_bytes().replace(b"Suite: stable", b"Suite: Stable"))
    with pytest.raises(InputError, match="is not signed by a key"):
        debian.find("hello", "trixie", "amd64", transfer)


@needs_gpgv
@pytest.mark.parametrize("place", ["before", "after"])
def test_text_around_the_signed_part_does_not_count(mirror: Path, transfer: Transfer, place: str) -> None:
    release = mirror / "dists/trixie/InRelease"
    signed, forged = release.read_bytes(), b"Codename: trixie\nSHA256:\n " + b"0" * 64 + b" 1 main/x\n"
    release.write_bytes(forged + signed if place == "before" else signed + forged)
    digests = {debian.find("hello", "trixie", "amd64", transfer).sha256}
    assert digests == {sha256_file(DEB)}


@needs_gpgv
def test_an_unsigned_release_is_refused(mirror: Path, transfer: Transfer) -> None:
    (mirror / "dists/trixie/InRelease").write_text("Suite: stable\nCodename: trixie\n")
    with pytest.raises(InputError, match="is not signed by a key"):
        debian.find("hello", "trixie", "amd64", transfer)


@needs_gpgv
def test_a_key_that_is_not_in_the_keyring_is_not_trusted(
    mirror: Path, transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_DEBIAN_KEYRING", str(DATA / "other.gpg"))
    with pytest.raises(InputError, match="is not signed by a key") as caught:
        debian.find("hello", "trixie", "amd64", transfer)
    assert "CAPSULE_DEBIAN_KEYRING" in str(caught.value)


@needs_gpgv
def test_a_release_that_is_no_longer_valid_is_refused(mirror: Path, transfer: Transfer) -> None:
    with pytest.raises(InputError, match="was valid until Sat, 01 Jan 2022"):
        debian.find("hello", "stale", "amd64", transfer)


@needs_gpgv
def test_another_suites_release_is_refused(mirror: Path, transfer: Transfer) -> None:
    (mirror / "dists/forky").mkdir()
    shutil.copy(mirror / "dists/trixie/InRelease", mirror / "dists/forky/InRelease")
    with pytest.raises(InputError, match="should be the index of forky is that of stable or trixie"):
        debian.find("hello", "forky", "amd64", transfer)


@needs_gpgv
def test_what_a_suite_does_not_have_is_said(mirror: Path, transfer: Transfer) -> None:
    with pytest.raises(InputError, match="no package 'nothing' for amd64"):
        debian.find("nothing", "trixie", "amd64", transfer)
    with pytest.raises(InputError, match="no index for sparc"):
        debian.find("hello", "trixie", "sparc", transfer)


def test_gpgv_that_is_missing_is_said(
    mirror: Path, transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="gpgv is not installed") as caught:
        debian.find("hello", "trixie", "amd64", transfer)
    assert "apt-get install gpgv" in str(caught.value)


def test_a_release_without_an_end_is_valid() -> None:
    release = debian.Release({"Suite": "stable", "Codename": "trixie"}, {})
    debian.check_release(release, "stable", "mirror", datetime.now(UTC))
    release = debian.Release({"Suite": "stable", "Valid-Until": "soon"}, {})
    with pytest.raises(InputError, match="is no date"):
        debian.check_release(release, "stable", "mirror", datetime.now(UTC))


@pytest.mark.parametrize("data", [b"no xz", lzma.compress(b"Package: x\nVersion: 1\n"), b""])
def test_what_is_no_index_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "Packages.xz").write_bytes(data)
    with pytest.raises(InputError, match="is not a Debian index"):
        debian.read_packages(tmp_path / "Packages.xz")


def test_a_pinned_package_comes_from_its_place_on_the_mirror(
    transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = Pin(
        "h",
        "any",
        "debian",
        "hello",
        "1:2.10-3+b1",
        "h_2.10-3+b1.deb",
        "a" * 64,
        3,
        "MIT",
        "pool/h_2.10-3+b1.deb",
    )
    with serve() as site:
        monkeypatch.setenv("CAPSULE_DEBIAN_MIRROR", site.url + "debian/")
        with pytest.raises(NotThereError):
            debian.fetch(pin, transfer)
        site.answers["/debian/pool/h_2.10-3%2Bb1.deb"] = body(b"deb")
        assert debian.fetch(pin, transfer).read_bytes() == b"deb"


def fake_apt(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int = 0) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "apt-get"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("output", "url"),
    [
        (
            "Debian-Security|http://a.test/debian-security\nDebian|http://b.test/debian",
            "http://b.test/debian/",
        ),
        ("Other|https://c.test/x\nDebian|cdrom:[x]/\nDebian|https://b.test/d/", "https://b.test/d/"),
        ("|http://a.test/debian-security/\n|http://b.test/debian/", "http://b.test/debian/"),
    ],
)
def test_the_main_archive_of_apts_sources_is_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, url: str
) -> None:
    fake_apt(tmp_path, monkeypatch, output)
    assert debian.mirror() == Location(url=url)


@pytest.mark.parametrize(("output", "code"), [("", 0), ("Other|http://a.test/x", 0), ("", 100)])
def test_without_a_mirror_the_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int
) -> None:
    fake_apt(tmp_path, monkeypatch, output, code)
    with pytest.raises(InputError, match="No Debian mirror is known") as caught:
        debian.mirror()
    assert "CAPSULE_DEBIAN_MIRROR" in str(caught.value)


def test_without_apt_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="no apt-get"):
        debian.mirror()


def test_a_keyring_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAPSULE_DEBIAN_KEYRING", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="isn't there"):
        debian.keyring()
    monkeypatch.delenv("CAPSULE_DEBIAN_KEYRING")
    monkeypatch.setattr(debian, "_KEYRINGS", (str(tmp_path / "missing"),))
    with pytest.raises(InputError, match="debian-archive-keyring"):
        debian.keyring()
    (tmp_path / "missing").touch()
    assert debian.keyring() == tmp_path / "missing"
