from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from packaging.licenses import canonicalize_license_expression

from capsule_build.components import TARGETS, load_components
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import ContractError, UsageError
from capsule_build.runtime.platforms import Platform

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
[uv]
title = "uv"
kind = "pypi"
package = "uv"
track = "==0.12.*"
license = "MIT"
[uv.targets]
x86_64 = "musllinux_1_1_x86_64"
any = "any"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "components.toml"
    path.write_text(text)
    return path


def test_the_projects_components_are_well_formed_and_licensed_by_spdx() -> None:
    components = load_components(recipes_dir() / "components.toml")
    assert {"node", "uv", "cpython", "libc6", "musl-cxx", "libstdc++6"} <= components.keys()
    for component in components.values():
        assert canonicalize_license_expression(component.license) == component.license


def test_every_component_is_there_for_both_architectures() -> None:
    for component in load_components(recipes_dir() / "components.toml").values():
        served = {target.split("-")[0] for target in component.targets}
        if component.kind == "github-release":
            # Only releases whose digests are known are pinned.
            assert "x86_64" in served, component.name
            continue
        assert served in ({"x86_64", "aarch64"}, {"any"}), component.name


def test_the_most_specific_target_is_found(tmp_path: Path) -> None:
    component = load_components(write(tmp_path, GOOD))["uv"]
    assert component.target_for(Platform("x86_64", "musl")) == "x86_64"
    assert component.target_for(Platform("aarch64", "musl")) == "any"
    assert component.selector("any") == "any"
    with pytest.raises(UsageError, match="has no target 'aarch64'; it has any, x86_64"):
        component.selector("aarch64")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('license = "MIT"', "", "'uv' lacks license"),
        ('license = "MIT"', 'license = " "', "has an empty 'license'"),
        ('license = "MIT"', "license = 3", "'license' that is not text"),
        ('title = "uv"', 'title = "uv"\nhomepage = "x"', "unknown key: homepage"),
        ('kind = "pypi"', 'kind = "conda"', "unknown kind 'conda'"),
        ('track = "==0.12.*"', 'track = "0.12"', "not a version specifier"),
        ("x86_64 =", "sparc =", "unknown target: sparc"),
        ("x86_64 =", "x86_64 = 1 #", "'x86_64' that is not text"),
        ("[uv]", "[UV]", "name other than"),
        ('kind = "pypi"', 'kind = "github-release"', "must have a 'version'"),
        ('title = "uv"', 'title = "uv"\nversion = "1"', "must have a 'version' if, and only if"),
    ],
)
def test_a_malformed_component_is_refused_by_name(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = GOOD.replace(old, new)
    if new == "[UV]":
        text = text.replace("[uv.targets]", "[UV.targets]")
    with pytest.raises(ContractError, match=says):
        load_components(write(tmp_path, text))


def test_a_component_needs_targets(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="has no targets"):
        load_components(write(tmp_path, GOOD.partition("[uv.targets]")[0] + "[uv.targets]\n"))
    with pytest.raises(ContractError, match="is not a table"):
        load_components(write(tmp_path, "uv = 1"))


def test_a_missing_and_a_broken_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        load_components(tmp_path / "components.toml")
    with pytest.raises(ContractError, match="not valid TOML"):
        load_components(write(tmp_path, "[uv"))


def test_targets_name_every_platform() -> None:
    assert len(set(TARGETS)) == len(TARGETS) == 7
