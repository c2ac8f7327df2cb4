"""pip itself, against an index on loopback."""

from __future__ import annotations

import hashlib
import io
import threading
import time
import zipfile
from typing import TYPE_CHECKING

import pytest

from capsule_build.components import Component
from capsule_build.fetch import Cache, current, look_up, pypi
from capsule_build.fetch.transfer import (
    CancelledError,
    NotThereError,
    Transfer,
    UnreachableError,
    WrongFileError,
)
from capsule_build.pins import Pin
from capsule_build.runtime.errors import InputError, UsageError
from tests.servers import Site, body, isolate, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

TAG = "py3-none-musllinux_1_2_aarch64"
COMPONENT = Component("tiny", "Tiny", "pypi", "tiny", "MIT", ">=1", {"aarch64": "musllinux_1_2_aarch64"})


def wheel(version: str, tag: str = TAG) -> bytes:
    """A wheel of an empty package, for a machine that the test doesn't run on."""
    buffer = io.BytesIO()
    folder = f"tiny-{version}.dist-info"
    with zipfile.ZipFile(buffer, "w") as archive:
        metadata = f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\nRequires-Python: >=3.99\n"
        archive.writestr(f"{folder}/METADATA", metadata)
        archive.writestr(f"{folder}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
        archive.writestr(f"{folder}/RECORD", "")
    return buffer.getvalue()


def publish(site: Site, *versions: str, digests: bool = True, tag: str = TAG) -> dict[str, Pin]:
    """Put wheels on an index; return their pins."""
    links, pins = [], {}
    for version in versions:
        name, data = f"tiny-{version}-{tag}.whl", wheel(version, tag)
        digest = hashlib.sha256(data).hexdigest()
        site.answers[f"/files/{name}"] = body(data)
        links.append(f'<a href="/files/{name}{"#sha256=" + digest if digests else ""}">{name}</a>')
        pins[version] = Pin("tiny", "aarch64", "pypi", "tiny", version, name, digest, len(data), "MIT")
    page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()

    def index(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/html")
        request.send_header("Content-Length", str(len(page)))
        request.end_headers()
        request.wfile.write(page)

    site.answers["/simple/tiny/"] = index
    return pins


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    isolate(monkeypatch)
    with serve() as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url + "simple/")
        yield running


@pytest.fixture
def transfer(tmp_path: Path) -> Transfer:
    (tmp_path / "staging").mkdir()
    return Transfer(tmp_path / "staging")


@pytest.mark.slow
def test_pip_brings_a_pinned_wheel_of_another_machine_from_the_users_index(
    site: Site, transfer: Transfer
) -> None:
    pins = publish(site, "1.0", "1.1")
    file = pypi.fetch(pins["1.0"], transfer)
    assert file.name == pins["1.0"].file
    assert hashlib.sha256(file.read_bytes()).hexdigest() == pins["1.0"].sha256


@pytest.mark.slow
def test_a_wheel_that_is_not_the_pinned_one_is_refused_with_its_digest(
    site: Site, transfer: Transfer
) -> None:
    pin = publish(site, "1.0")["1.0"]
    site.answers[f"/files/{pin.file}"] = body(wheel("1.0") + b"x")
    with pytest.raises(WrongFileError, match=r"isn't the pinned file: it has the SHA-256 [0-9a-f]{64}"):
        pypi.fetch(pin, transfer)


@pytest.mark.slow
def test_a_pinned_version_that_the_index_lacks_is_not_there(site: Site, transfer: Transfer) -> None:
    pin = publish(site, "1.0")["1.0"]
    publish(site, "1.1")
    with pytest.raises(NotThereError, match=r"No index that pip knows has a wheel of pypi:tiny==1\.0"):
        pypi.fetch(pin, transfer)


@pytest.mark.slow
def test_an_index_that_can_not_be_reached_is_said_with_pips_configuration(
    site: Site, transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = publish(site, "1.0")["1.0"]
    with serve() as gone:
        monkeypatch.setenv("PIP_INDEX_URL", gone.url + "simple/")
    with pytest.raises(UnreachableError) as caught:
        pypi.fetch(pin, transfer)
    assert "pip config list" in str(caught.value)


@pytest.mark.slow
def test_a_version_that_is_not_pinned_is_looked_up_and_cached(site: Site, tmp_path: Path) -> None:
    pins = publish(site, "1.0", "1.1", "2.0")
    cache = Cache(tmp_path / "cache")
    assert look_up(COMPONENT, "aarch64", "1.1", cache=cache) == pins["1.1"]
    assert cache.get(pins["1.1"].sha256, pins["1.1"].size) is not None


@pytest.mark.slow
def test_an_index_without_digests_is_looked_into_by_downloading(site: Site, tmp_path: Path) -> None:
    pins = publish(site, "1.0", digests=False)
    assert look_up(COMPONENT, "aarch64", "1.0", cache=Cache(tmp_path / "cache")) == pins["1.0"]


@pytest.mark.slow
def test_a_version_that_does_not_exist_is_wrong_usage_and_the_nearest_are_named(
    site: Site, tmp_path: Path
) -> None:
    publish(site, "1.0", "1.1", "24.1.0", "24.2.0", "24.9.0", "24.10.0", "24.11.0", "25.0")
    with pytest.raises(UsageError, match=r"There is no Tiny 24\.999\.0") as caught:
        look_up(COMPONENT, "aarch64", "24.999.0", cache=Cache(tmp_path))
    assert "24.1.0, 24.2.0, 24.9.0, 24.10.0, 24.11.0." in str(caught.value)


@pytest.mark.parametrize("version", ["", "abc", "1.*", "1.0, <3", "--index-url=x"])
def test_what_is_no_version_is_wrong_usage(tmp_path: Path, version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        look_up(COMPONENT, "aarch64", version, cache=Cache(tmp_path))


@pytest.mark.slow
def test_a_package_that_no_index_has_is_an_input_error(site: Site, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No index that pip knows"):
        current(COMPONENT, "aarch64", cache=Cache(tmp_path))


@pytest.mark.slow
def test_the_newest_version_is_current_and_a_known_pin_saves_its_download(site: Site, tmp_path: Path) -> None:
    pins = publish(site, "1.0", "1.1")
    site.asked.clear()
    assert current(COMPONENT, "aarch64", cache=Cache(tmp_path), known=pins.values()) == pins["1.1"]
    assert Cache(tmp_path).entries() == []


@pytest.mark.slow
def test_pip_is_ended_when_the_transfer_is_called_off(site: Site, tmp_path: Path) -> None:
    publish(site, "1.0")
    hanging = threading.Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        hanging.set()
        time.sleep(3)

    pin = publish(site, "1.0")["1.0"]
    site.answers["/simple/tiny/"] = hang
    called_off = threading.Event()

    def call_off() -> None:
        hanging.wait()
        called_off.set()

    threading.Thread(target=call_off, daemon=True).start()
    folder = tmp_path / "x"
    folder.mkdir()
    with pytest.raises(CancelledError):
        pypi.fetch(pin, Transfer(folder, cancelled=called_off))
    assert hanging.is_set()


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("uv-1-py3-none-any.whl", ["--abi", "none", "--implementation", "py"]),
        (
            "uv-1-cp312-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            [
                "--platform",
                "manylinux2014_x86_64",
                "--platform",
                "manylinux_2_17_x86_64",
                "--abi",
                "abi3",
                "--implementation",
                "cp",
                "--python-version",
                "3.12",
            ],
        ),
    ],
)
def test_a_wheels_name_says_what_pip_must_be_told(file: str, options: list[str]) -> None:
    assert pypi._tags(file) == ["--ignore-requires-python", *options]


def test_what_is_no_wheel_is_refused() -> None:
    with pytest.raises(InputError, match="not the name of a wheel"):
        pypi._tags("uv-1.tar.gz")


def test_pre_releases_are_near_only_to_pre_releases() -> None:
    assert pypi.nearest("1.1", ["1.0", "1.2rc1", "junk", "3.0"], 2) == ["1.0", "3.0"]
    assert pypi.nearest("1.2rc2", ["1.0", "1.2rc1", "3.0"], 1) == ["1.2rc1"]
    assert pypi.nearest("1.1", ["1.2rc1"]) == ["1.2rc1"]
