"""A bundle is built again from its provenance, and what differs is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from capsule_build.build import build
from capsule_build.cli.definitions import load_definitions
from capsule_build.pins import dump_pins
from capsule_build.recipes import load_recipes
from capsule_build.release.comparing import compare_members
from capsule_build.release.outputs import Outputs
from capsule_build.release.provenance import make_provenance
from capsule_build.release.reproducing import Reproduction, Task, plan_reproduction, reproduce
from capsule_build.runtime.errors import ContractError, InputError, SignatureError, UsageError
from tests import archives, bundles, fakes, tiny_recipe

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.plan import BuildPlan

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    fakes.detach(monkeypatch)
    monkeypatch.setattr("capsule_build.release.reproducing.host_architecture", lambda: "x86_64")
    (tmp_path / "code").mkdir()
    monkeypatch.setattr("capsule_build.record.package_dir", lambda: tmp_path / "code")
    return fakes.World(tmp_path)


def made(world: fakes.World, plan: BuildPlan | None = None) -> Path:
    return build(plan or world.plan(), world.shop, world.report).plan.output


def planned(
    world: fakes.World, bundle: Path, sources: dict[str, Path] | None = None, output: Path | None = None
) -> Task:
    definitions = load_definitions(world.recipes)
    return plan_reproduction(
        bundle,
        load_recipes(world.recipes),
        definitions.pins,
        definitions.templates,
        output=output or world.folder / "again.tar.gz",
        sources=sources or {},
    )


def reproduced(world: fakes.World, bundle: Path, sources: dict[str, Path] | None = None) -> Reproduction:
    return reproduce(planned(world, bundle, sources), world.shop, world.report)


def test_the_same_inputs_make_the_same_bundle(world: fakes.World) -> None:
    bundle = made(world)
    task = planned(world, bundle)
    assert (task.differences, task.moved) == ((), ())
    result = reproduce(task, world.shop, world.report)
    assert result == Reproduction(task.provenance.sha256, None)
    assert (world.folder / "again.tar.gz").read_bytes() == bundle.read_bytes()


def test_the_second_bundle_never_takes_the_place_of_the_first(world: fakes.World) -> None:
    bundle = made(world)
    link = world.folder / "link.tar.gz"
    link.symlink_to(bundle)
    for output in (bundle, bundle.parent / ".." / bundle.parent.name / bundle.name, link):
        with pytest.raises(UsageError, match="is the bundle itself"):
            planned(world, bundle, output=output)


def test_what_differs_is_named_by_member(world: fakes.World) -> None:
    bundle = made(world)
    files = world.engine.files
    files["share/licenses/tool/LICENSE"] += b"More.\n"
    files["runtime/tool/new"] = files.pop("runtime/tool/data")
    (world.recipes / "tiny.toml").write_text(f"{tiny_recipe.RECIPE}# more\n")
    task = planned(world, bundle)
    assert task.differences == ("definition: recipe",)
    result = reproduce(task, world.shop, world.report)
    assert result.comparison is not None
    assert result.sha256 != task.provenance.sha256
    found = {difference.name: difference for difference in result.comparison.members}
    assert found["runtime/tool/new"].aspects == ("only in the second",)
    assert found["runtime/tool/data"].aspects == ("only in the first",)
    licence = found["share/licenses/tool/LICENSE"]
    assert licence.aspects == ("size", "content")
    assert int(licence.second[0]) - int(licence.first[0]) == len(b"More.\n")
    assert licence.line().startswith(f"share/licenses/tool/LICENSE: size {licence.first[0]} -> ")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("tiny.toml", "recipe"),
        ("components.toml", "components"),
        ("templates/scripts/step.sh", "templates"),
        ("../code/pack.py", "code"),
    ],
)
def test_definitions_that_are_others_are_named(world: fakes.World, file: str, name: str) -> None:
    (world.folder / "code" / "pack.py").write_text("")
    bundle = made(world)
    with (world.recipes / file).open("a") as stream:
        stream.write("# more\n")
    assert planned(world, bundle).differences == (f"definition: {name}",)


def test_another_compressor_is_named(world: fakes.World) -> None:
    bundle = made(world)
    outputs = Outputs(bundle)
    record = json.loads(outputs.record.read_bytes())
    record["builder"]["zlib_ng"] = "0.5.1"
    outputs.provenance.write_bytes(make_provenance(json.dumps(record).encode()))
    (difference,) = planned(world, bundle).differences
    assert difference.startswith("zlib-ng: 0.5.1 then, ")


def test_inputs_are_the_provenances_whatever_the_pins_say_now(world: fakes.World) -> None:
    bundle = made(world)
    pins = load_definitions(world.recipes).pins
    moved = pins.replace(replace(pin, version="9", sha256="0" * 64) for pin in pins.pins)
    (world.recipes / "pins.lock.json").write_bytes(dump_pins(replace(moved, epoch=7)))
    task = planned(world, bundle)
    assert set(task.moved) == {pin.label for pin in task.provenance.pins}
    assert reproduce(task, world.shop, world.report).comparison is None


def own_tool(world: fakes.World) -> tuple[Path, Path]:
    """A bundle that was made with an own tool, and the tool's file."""
    own = world.folder / "own.tar"
    own.write_bytes(archives.tar_bytes({"tool/VERSION": b"1.4.0", "tool/bin/tool": b"x"}))
    world.engine.answers["tool"] = (f"tool 1.4.0 with inner {tiny_recipe.INNER_VERSION}", 0)
    return made(world, world.plan(versions={"tool": "1.4.0"}, sources={"tool": own})), own


def test_an_own_file_has_to_be_given_again(world: fakes.World) -> None:
    bundle, own = own_tool(world)
    assert bundle.name == "tiny-1.4.0-linux-x86_64-glibc.tar.gz"
    with pytest.raises(UsageError, match="an own file for tool, of SHA-256") as raised:
        reproduced(world, bundle)
    assert raised.value.hint == "Give it again: --source tool=PATH."
    assert reproduced(world, bundle, {"tool": own}).comparison is None
    own.write_bytes(own.read_bytes() + bytes(512))
    with pytest.raises(InputError, match="what was taken had"):
        reproduced(world, bundle, {"tool": own})


def test_what_was_no_own_file_is_none_now(world: fakes.World) -> None:
    bundle = made(world)
    with pytest.raises(UsageError, match="was made without one"):
        reproduced(world, bundle, {"tool": bundle})


def test_a_provenance_that_is_missing_or_about_something_else_is_refused(world: fakes.World) -> None:
    bundle = made(world)
    outputs = Outputs(bundle)
    statement = outputs.provenance.read_bytes()
    outputs.provenance.write_bytes(statement.replace(b"tiny-v1-linux-x86_64-glibc.tar.gz", b"other.tar.gz"))
    with pytest.raises(SignatureError, match=r"is about other\.tar\.gz"):
        planned(world, bundle)
    outputs.provenance.write_bytes(b"{}")
    with pytest.raises(ContractError):
        planned(world, bundle)
    outputs.provenance.unlink()
    with pytest.raises(UsageError, match="There is no provenance"):
        planned(world, bundle)


def test_a_recipe_that_is_not_there_any_more_is_named(world: fakes.World) -> None:
    bundle = made(world)
    (world.recipes / "tiny.toml").rename(world.recipes / "teeny.toml")
    (world.recipes / "teeny.toml").write_text(tiny_recipe.RECIPE.replace('id = "tiny"', 'id = "teeny"'))
    with pytest.raises(UsageError, match="no recipe 'tiny': did you mean 'teeny'"):
        planned(world, bundle)


def test_a_recipe_that_takes_other_inputs_now_is_another_build(world: fakes.World) -> None:
    bundle = made(world)
    recipe = (world.recipes / "tiny.toml").read_text()
    (world.recipes / "tiny.toml").write_text(recipe.replace('licences = ["texts"]', "licences = []"))
    with pytest.raises(InputError, match="other inputs than the provenance names: texts"):
        reproduced(world, bundle)


def test_kinds_modes_times_targets_and_order_are_compared(tmp_path: Path) -> None:
    first, second = bundles.small_bundle(), bundles.small_bundle()
    for bundle in (first, second):
        bundle.add(
            bundles.file("share/zz-a", b"1"), bundles.file("share/zz-b"), bundles.link("share/zz-c", "zz-a")
        )
    second.change("share/zz-a", mode=b"0000755\0")
    second.replace("share/zz-b", bundles.folder("share/zz-b"))
    second.change("share/zz-c", target=b"zz-b")
    (tmp_path / "1").write_bytes(first.data())
    (tmp_path / "2").write_bytes(second.data())
    found = compare_members(tmp_path / "1", tmp_path / "2")
    assert {item.name: item.aspects for item in found.members} == {
        "share/zz-a": ("mode",),
        "share/zz-b": ("kind", "mode"),
        "share/zz-c": ("target",),
    }
    assert found.lines()[0] == "share/zz-a: mode 0644 -> 0755"
    assert found.same_order


def test_bundles_whose_members_are_the_same_are_packed_otherwise(tmp_path: Path) -> None:
    bundle = bundles.small_bundle()
    (tmp_path / "1").write_bytes(bundle.data())
    (tmp_path / "2").write_bytes(bundles.gzip(bundle.tar(), level=1))
    found = compare_members(tmp_path / "1", tmp_path / "2")
    assert found.members == ()
    assert found.lines() == ["all members are the same: they are packed otherwise"]
