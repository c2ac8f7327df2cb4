from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.components import Component
from capsule_build.fetch import Cache, current, look_up, npm
from capsule_build.fetch.obtain import fetch_all
from capsule_build.fetch.transfer import NotThereError, WrongFileError
from capsule_build.runtime.errors import InputError, UsageError
from tests.servers import Site, body, isolate, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPONENT = Component("tiny", "Tiny", "npm", "@scope/tiny", "MIT", "==1.*", {"any": ""})
DATA = b"a tarball"


def integrity(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


def publish(site: Site, *versions: str, **dist: Any) -> None:
    listed = {}
    for version in versions:
        site.answers[f"/@scope/tiny/-/tiny-{version}.tgz"] = body(DATA)
        tarball = f"{site.url}@scope/tiny/-/tiny-{version}.tgz"
        listed[version] = {"dist": {"tarball": tarball, "integrity": integrity(DATA), **dist}}
    site.answers["/@scope%2Ftiny"] = body(json.dumps({"versions": listed}).encode())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    isolate(monkeypatch)
    with serve() as running:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "npm"
        program.write_text(
            f"#!/bin/sh\n[ \"$*\" = 'config get registry' ] && echo {running.url.rstrip('/')}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
        yield running


def test_the_highest_version_of_the_users_registry_is_current_and_can_be_fetched(
    site: Site, tmp_path: Path
) -> None:
    publish(site, "1.2.0", "1.10.0", "2.0.0", "1.11.0-beta.1", "weird")
    cache = Cache(tmp_path / "cache")
    pin = current(COMPONENT, "any", cache=cache)
    assert (pin.version, pin.file, pin.size) == ("1.10.0", "tiny-1.10.0.tgz", len(DATA))
    assert pin.sha256 == hashlib.sha256(DATA).hexdigest()
    cache.prune(set())
    got = fetch_all([pin], cache=cache, components={"tiny": COMPONENT})
    assert got[pin].path.read_bytes() == DATA


def test_a_tarball_that_does_not_match_its_integrity_is_refused(site: Site, tmp_path: Path) -> None:
    publish(site, "1.0.0", integrity=integrity(b"another"))
    with pytest.raises(WrongFileError, match="sha512 integrity"):
        look_up(COMPONENT, "any", "1.0.0", cache=Cache(tmp_path / "cache"))


@pytest.mark.parametrize("weak", ["sha1-abc", "", "nonsense"])
def test_a_weak_integrity_is_no_integrity(site: Site, tmp_path: Path, weak: str) -> None:
    publish(site, "1.0.0", integrity=weak)
    with pytest.raises(WrongFileError, match="no integrity"):
        look_up(COMPONENT, "any", "1.0.0", cache=Cache(tmp_path / "cache"))


def test_the_nearest_versions_to_one_that_does_not_exist_are_named(site: Site, tmp_path: Path) -> None:
    publish(site, "1.0.0", "1.1.0")
    with pytest.raises(UsageError, match=r"There is no Tiny 1\.9\.0") as caught:
        look_up(COMPONENT, "any", "1.9.0", cache=Cache(tmp_path / "cache"))
    assert "1.0.0, 1.1.0" in str(caught.value)


def test_a_package_that_the_registry_lacks_is_said(site: Site, tmp_path: Path) -> None:
    with pytest.raises(NotThereError, match="has no package '@scope/tiny'"):
        current(COMPONENT, "any", cache=Cache(tmp_path / "cache"))


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"versions": 3}', b"{}"])
def test_what_is_no_registry_is_said(site: Site, tmp_path: Path, answer: bytes) -> None:
    site.answers["/@scope%2Ftiny"] = body(answer)
    with pytest.raises(InputError, match="isn't what a registry answers"):
        current(COMPONENT, "any", cache=Cache(tmp_path / "cache"))


def test_npm_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InputError, match="npm is not installed"):
        npm._registry()
