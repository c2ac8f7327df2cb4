"""What a release is made of: capsules by name and libc, their sources, and what is finished already."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.cli.definitions import load_definitions
from capsule_build.recipes import load_recipes
from capsule_build.release.finished import why_unfinished
from capsule_build.release.outputs import Outputs
from capsule_build.release.provenance import make_provenance
from capsule_build.release.selection import plan_release, select
from capsule_build.runtime.errors import UsageError
from tests import tiny_recipe
from tests.crew import Crew, crew, own_tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from capsule_build.pins import PinSet

pytestmark = pytest.mark.slow

__all__ = ["crew"]


def replaced(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


UNFINISHED: dict[str, tuple[Callable[[Crew, Outputs], object], str]] = {
    "no bundle": (lambda _, files: files.bundle.unlink(), "isn't there"),
    "no record": (lambda _, files: files.record.unlink(), "lacks .*build.json"),
    "no provenance": (lambda _, files: files.provenance.unlink(), "lacks .*provenance.json"),
    "no SBOM": (lambda _, files: files.sbom.unlink(), "lacks .*cdx.json"),
    "no digest": (lambda _, files: files.digest.unlink(), "lacks .*sha256"),
    "a byte more": (
        lambda _, files: files.bundle.write_bytes(files.bundle.read_bytes() + b"x"),
        "isn't whole",
    ),
    "half a record": (lambda _, files: files.record.write_text("{"), "isn't whole"),
    "an old record": (lambda _, files: replaced(files.record, "record.v2", "record.v1"), "another version"),
    "another provenance": (lambda _, files: replaced(files.provenance, "fake", "made"), "a provenance that"),
    "another SBOM": (lambda _, files: replaced(files.sbom, "inner", "outer"), "another SBOM"),
    "another digest": (lambda _, files: replaced(files.digest, "  tiny", "  huge"), "another digest"),
    "another size": (
        lambda _, files: replaced(files.record, '"size": ', '"size": 1'),
        "was made of another|describes",
    ),
    "the recipe": (
        lambda crew, _: replaced(crew.world.recipes / "tiny.toml", "A tiny tool", "A small tool"),
        "another definition: recipe",
    ),
    "the components": (
        lambda crew, _: replaced(crew.world.recipes / "components.toml", 'title = "tool"', 'title = "x"'),
        "another definition: components",
    ),
    "the templates": (
        lambda crew, _: replaced(crew.world.recipes / "templates/scripts/step.sh", "set -eu", "set -e"),
        "another definition: templates",
    ),
    "the code": (
        lambda crew, _: replaced(crew.world.folder / "code/pack.py", "decides", "decided"),
        "another definition: code",
    ),
    "the compressor": (lambda _, files: replaced(files.record, '"zlib_ng": "', '"zlib_ng": "0.'), "zlib-ng"),
}


@pytest.mark.parametrize("case", UNFINISHED)
def test_finished_is_told_by_what_a_bundle_is(crew: Crew, case: str) -> None:
    (plan,) = crew.plans("tiny:glibc")
    crew.release([plan])
    assert why_unfinished(plan, crew.world.shop.templates) is None
    change, why = UNFINISHED[case]
    change(crew, Outputs(plan.output))
    found = why_unfinished(plan, crew.world.shop.templates)
    assert found is not None
    assert re.search(why, found), found


def moved_pins(crew: Crew, component: str) -> PinSet:
    """The pins with another digest for a component."""
    pins = load_definitions(crew.world.recipes).pins
    return pins.replace(replace(pin, sha256="0" * 64) for pin in pins.pins if pin.component == component)


@pytest.mark.parametrize("component", ["tool", "helper", "musl-dev", "texts", "busybox-static"])
def test_a_pin_that_moved_is_another_bundle(crew: Crew, component: str) -> None:
    crew.release(crew.plans("tiny:glibc"))
    selected = select(load_recipes(crew.world.recipes), ["tiny:glibc"], everything=False)
    (plan,) = plan_release(selected, moved_pins(crew, component), dist=crew.world.dist)
    assert why_unfinished(plan, crew.world.shop.templates) == f"was made of another {component}"


def test_what_took_a_vanished_pins_place_counts_where_it_may(crew: Crew) -> None:
    (plan,) = crew.plans("tiny:glibc")
    crew.release([plan])
    outputs = Outputs(plan.output)
    record = json.loads(outputs.record.read_bytes())
    (helper,) = [item for item in record["inputs"] if item["name"] == "helper" and item["role"] == "shipped"]
    helper.update(origin="newer", sha256="0" * 64)
    record["overrides"] = ["helper"]
    outputs.record.write_text(json.dumps(record))
    outputs.provenance.write_bytes(make_provenance(outputs.record.read_bytes()))
    templates = crew.world.shop.templates
    assert why_unfinished(plan, templates) == "was made of another helper"
    assert why_unfinished(plan, templates, newer=True) is None


def chosen(crew: Crew, *names: str, everything: bool = False, libcs: tuple[str, ...] = ()) -> list[str]:
    recipes = load_recipes(crew.world.recipes)
    return [
        f"{each.recipe.id}:{each.libc}" for each in select(recipes, names, everything=everything, libcs=libcs)
    ]


def test_capsules_are_named_by_recipe_and_libc(crew: Crew) -> None:
    assert chosen(crew, everything=True) == chosen(crew, "tiny") == ["tiny:glibc", "tiny:musl"]
    assert chosen(crew, "tiny:musl", "tiny") == ["tiny:musl", "tiny:glibc"]
    assert chosen(crew, "tiny", libcs=("musl",)) == ["tiny:musl"]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ((), {}, "Which capsules"),
        (("tiny",), {"everything": True}, "--all and names"),
        (("teeny",), {}, "did you mean 'tiny'"),
        (("tiny:uclibc",), {}, "'uclibc' is not a C library"),
        (("tiny:musl",), {"libcs": ("glibc",)}, "--libc glibc: none"),
    ],
)
def test_what_names_no_capsule(
    crew: Crew, names: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        chosen(crew, *names, **options)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (("tool",), "not of the form"),
        (("=x",), "not of the form"),
        (("tiny:=x",), "not of the form"),
        (("tool=/no/such/file",), "there is no such file"),
        (("huge:tool={own}",), "none of the capsules has that input"),
        (("pipe={own}",), "none of the capsules has that input"),
        (("tool={own}", "tiny:tool={own}"), "are about the same input of tiny"),
    ],
)
def test_what_is_no_source_of_a_release(crew: Crew, sources: tuple[str, ...], message: str) -> None:
    own = own_tool(crew.world.folder)
    with pytest.raises(UsageError, match=message):
        crew.plans(sources=tuple(text.format(own=own) for text in sources))


def test_a_source_is_for_the_capsules_that_it_names(crew: Crew) -> None:
    own = own_tool(crew.world.folder, tiny_recipe.TOOL_VERSION)
    for scope, overridden in (("", [True, True]), ("tiny:", [True, True]), ("tiny:musl:", [False, True])):
        plans = crew.plans(sources=(f"{scope}tool={own}",))
        assert [bool(plan.overrides) for plan in plans] == overridden
