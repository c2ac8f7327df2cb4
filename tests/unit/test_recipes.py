"""Recipes are data, and what can't be meant is refused by its key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.recipes import (
    Contained,
    Packages,
    Recipe,
    RuntimeChoice,
    check_libc,
    find_recipe,
    load_recipe,
    load_recipes,
)
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import ContractError, UsageError
from tests import tiny_recipe

if TYPE_CHECKING:
    from pathlib import Path


def tiny(folder: Path, text: str = tiny_recipe.RECIPE, name: str = "tiny") -> Recipe:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return load_recipe(path)


def changed(old: str, new: str) -> str:
    assert tiny_recipe.RECIPE.count(old) >= 1, old
    return tiny_recipe.RECIPE.replace(old, new, 1)


def test_a_recipe_says_all_that_a_build_needs(tmp_path: Path) -> None:
    recipe = tiny(tmp_path)
    assert (recipe.id, recipe.tag, recipe.title) == ("tiny", "tiny-v1", "A tiny tool")
    assert recipe.libcs == ("glibc", "musl")
    assert recipe.template == "tiny.Dockerfile.j2"
    assert recipe.shipped == ("helper",)
    assert recipe.linked == ("musl-dev",)
    assert recipe.licences == ("texts",)
    assert recipe.build == ("busybox-static", "helper")
    assert recipe.tools == {"tool": "bin/tool", "seal-tree": "bin/seal-tree"}
    assert [(check.tool, check.expect) for check in recipe.smoke] == [
        ("tool", "tool {tool} with inner {inner}"),
        ("seal-tree", "seal-tree {native}"),
    ]
    assert recipe.smoke[0].arguments == ("--version", "with blanks and 'quotes'")
    assert recipe.contained == (Contained("part", "tool", "MIT", "", "runtime/tool/VERSION", "is (.*)"),)
    assert recipe.packages == (Packages("npm", "runtime/tool/node_modules", "tool", ("inner",)),)
    (choice,) = recipe.runtimes
    assert (choice.component, choice.option, choice.series, choice.in_version) == (
        "tool",
        "--tool-version",
        "1",
        True,
    )


def test_what_is_optional_has_a_default(tmp_path: Path) -> None:
    text = changed('series = "1"\n', "")
    before, _, rest = text.partition("[[packages]]")
    recipe = tiny(tmp_path, before + "[[smoke]]" + rest.partition("[[smoke]]")[2].replace("{inner}", "it"))
    assert recipe.packages == ()
    assert (recipe.spdx, recipe.written) == ("", ())
    assert recipe.runtimes[0].series == ""
    assert recipe.runtimes[0].form == "x.y.z"


TOP_KEYS = ["schema_version", "id", "tag", "title", "libcs", "template"]


@pytest.mark.parametrize("key", TOP_KEYS)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    lines = tiny_recipe.RECIPE.splitlines()
    del lines[next(number for number, line in enumerate(lines) if line.startswith(f"{key} "))]
    with pytest.raises(ContractError, match=f"'{key}' is missing") as raised:
        tiny(tmp_path, "\n".join(lines))
    assert str(tmp_path / "tiny.toml") in raised.value.message


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("runtime", "component"),
        ("runtime", "option"),
        ("runtime", "marker"),
        ("runtime", "version_file"),
        ("runtime", "version_pattern"),
        ("components", "shipped"),
        ("components", "linked"),
        ("components", "licences"),
        ("components", "build"),
        ("contained", "name"),
        ("contained", "inside"),
        ("contained", "license"),
        ("contained", "version_file"),
        ("contained", "version_pattern"),
        ("packages", "kind"),
        ("packages", "folder"),
        ("packages", "inside"),
        ("smoke", "tool"),
        ("smoke", "arguments"),
        ("smoke", "expect"),
    ],
)
def test_a_missing_key_of_a_table_is_named(tmp_path: Path, table: str, key: str) -> None:
    lines = tiny_recipe.RECIPE.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip("[]") == table)
    place = next(number for number in range(start, len(lines)) if lines[number].startswith(f"{key} "))
    del lines[place]
    with pytest.raises(ContractError, match=f"'{table}.{key}' is missing"):
        tiny(tmp_path, "\n".join(lines))


@pytest.mark.parametrize("table", ["components", "tools"])
def test_a_missing_table_is_named(tmp_path: Path, table: str) -> None:
    before, _, rest = tiny_recipe.RECIPE.partition(f"[{table}]")
    with pytest.raises(ContractError, match=f"'{table}' is missing"):
        tiny(tmp_path, before + "[" + rest.partition("\n[")[2])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version that this capsule-build doesn't know"),
        ("schema_version = 1", "schema_version = true", "'schema_version' should be"),
        ("schema_version = 1", 'schema_version = "1"', "'schema_version' should be"),
        ('id = "tiny"', "id = 3", "'id' should be a str"),
        ('id = "tiny"', 'id = "other"', "the id 'other', which differs from its file's name"),
        ('title = "A tiny tool"', 'title = "A tiny tool"\nextra = 1', "'extra' means nothing here"),
        ('series = "1"', 'series = "1"\nserie = "2"', "'runtime.serie' means nothing here"),
        ('build = ["busybox-static"', 'builds = []\nbuild = ["busybox-static"', "'components.builds' means"),
        ('tool = "tool"', 'tool = "tool"\nexit = 0', "'smoke.exit' means nothing here"),
        ('inside = "tool"', 'inside = "tool"\nx = 0', "'packages.x' means nothing here"),
        (
            'name = "part"\ninside = "tool"',
            'name = "part"\ninside = "x"',
            "what 'x' contains, which is no component",
        ),
        ('inside = "tool"', 'inside = "other"', "packages inside 'other', which is no component of it"),
        ('kind = "npm"', 'kind = "gem"', r"packages of the kind 'gem' \(known: npm, pypi\)"),
        ('names = ["inner"]', "names = []", "expects '{inner}' of 'tool'"),
        ('shipped = ["helper"]', "shipped = [1]", "'components.shipped' should hold strings"),
        ('shipped = ["helper"]', 'shipped = "helper"', "'components.shipped' should be a list"),
        ('libcs = ["glibc", "musl"]', 'libcs = ["uclibc"]', "libcs other than glibc, musl"),
        ('libcs = ["glibc", "musl"]', "libcs = []", "libcs other than glibc, musl"),
        ("in_version = true", "in_version = false", "no runtime that makes up its version"),
        ("in_version = true", 'in_version = "yes"', "'runtime.in_version' should be a bool"),
        ("version_pattern = '(\\d+)", "version_pattern = '((\\d+)", "isn't a regular expression"),
        ('[tools]\ntool = "bin/tool"', '[tools]\ntool = ["bin/tool"]', "'tools.tool' should be a str"),
        ('tool = "seal-tree"', 'tool = "nothing"', "smoke check of 'nothing', which isn't among its tools"),
        ('tool = "seal-tree"', 'tool = "tool"', "no smoke check of seal-tree"),
        ("[[runtime]]", "[runtime]", "'runtime' should be a list"),
        ("[components]", "[[components]]", "'components' should be a dict"),
        ("libcs = [", "libcs = [[", "can't be read"),
        ('title = "A tiny tool"', 'title = "A"\ntitle = "B"', "can't be read"),
    ],
)
def test_what_can_not_be_meant_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ContractError, match=message) as raised:
        tiny(tmp_path, changed(old, new))
    assert "tiny.toml" in raised.value.message


def test_arrays_of_something_else_than_tables_are_refused(tmp_path: Path) -> None:
    before, _, rest = tiny_recipe.RECIPE.partition("[[runtime]]")
    text = before + 'runtime = ["x"]\n[components]' + rest.partition("[components]")[2]
    with pytest.raises(ContractError, match="'runtime' should be an array of tables"):
        tiny(tmp_path, text)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_bytes(tiny_recipe.RECIPE.replace("A tiny", "Ein früher").encode("latin-1"))
    with pytest.raises(ContractError, match="can't be read"):
        load_recipe(tmp_path / "tiny.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # What an option isn't would end in the command line's parser, and a version without groups is empty.
        ('option = "--tool-version"', 'option = "tool-version"', "option 'tool-version'"),
        ('option = "--tool-version"', 'option = "--libc"', "option '--libc'"),
        (r"'(\d+)\.(\d+)\.(\d+)'", r"'\d+'", "no group"),
        ('build = ["busybox-static", ', "build = [", "lacks 'busybox-static'"),
        # What a smoke check waits for must be something that the SBOM has.
        ("with inner {inner}", "with inner {innner}", "innner"),
        ("with inner {inner}", "with inner {inner", "expect"),
        ("with inner {inner}", "with inner {}", "expects '{}'"),
    ],
)
def test_what_would_fail_only_later_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        tiny(tmp_path, changed(old, new))


def test_two_runtimes_can_not_share_an_option(tmp_path: Path) -> None:
    runtime = tiny_recipe.RECIPE[
        tiny_recipe.RECIPE.index("[[runtime]]") : tiny_recipe.RECIPE.index("[components]")
    ]
    second = runtime.replace('component = "tool"', 'component = "helper"')
    with pytest.raises(ContractError, match="option '--tool-version'"):
        tiny(tmp_path, tiny_recipe.RECIPE.replace(runtime, runtime + second))


def test_all_recipes_of_a_folder_are_read_but_the_list_of_components(tmp_path: Path) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    (folder / "tiny2.toml").write_text(changed('id = "tiny"', 'id = "tiny2"'))
    assert list(load_recipes(folder)) == ["tiny", "tiny2"]


def test_one_malformed_recipe_is_named(tmp_path: Path) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    (folder / "broken.toml").write_text("=")
    with pytest.raises(ContractError, match=r"broken\.toml"):
        load_recipes(folder)


def test_a_folder_that_is_not_there_or_holds_no_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="isn't there"):
        load_recipes(tmp_path / "missing")
    (tmp_path / "components.toml").write_text("")
    with pytest.raises(UsageError, match="holds no recipe"):
        load_recipes(tmp_path)


def test_the_projects_own_recipes_are_well_formed() -> None:
    recipes = load_recipes(recipes_dir())
    assert "node24" in recipes
    tags = [recipe.tag for recipe in recipes.values()]
    assert len(set(tags)) == len(tags)
    node = recipes["node24"]
    assert set(node.tools) == {"node", "npm", "npx", "seal-tree"}
    assert node.tag == "node24-v1"
    assert node.libcs == ("glibc", "musl")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("node2", "node24"), ("node", "node24"), ("nodejs24", "node24"), ("pyhton3.12", "python3.12")],
)
def test_an_unknown_recipe_suggests_the_nearest(tmp_path: Path, name: str, nearest: str) -> None:
    recipe = tiny(tmp_path)
    known = dict.fromkeys(("node24", "python3.12", "python3.12-node24"), recipe)
    with pytest.raises(UsageError, match=f"no recipe '{name}': did you mean '{nearest}'") as raised:
        find_recipe(known, name)
    assert raised.value.hint == "Recipes: node24, python3.12, python3.12-node24."


def test_where_nothing_is_near_nothing_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        find_recipe({"node24": tiny(tmp_path)}, "zzz")
    assert raised.value.message == "There is no recipe 'zzz'."


def test_a_recipe_is_found_by_its_id(tmp_path: Path) -> None:
    recipe = tiny(tmp_path)
    assert find_recipe({"tiny": recipe}, "tiny") is recipe


def test_a_libc_of_the_recipe_is_taken_and_no_other(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, changed('libcs = ["glibc", "musl"]', 'libcs = ["musl"]'))
    assert check_libc(recipe, "musl") == "musl"
    with pytest.raises(UsageError, match="'glibc' is not a C library that tiny is made for: musl"):
        check_libc(recipe, "glibc")


def choice(series: str) -> RuntimeChoice:
    return replace(load_recipe(recipes_dir() / "node24.toml").runtimes[0], series=series)


@pytest.mark.parametrize(
    ("series", "version"), [("24", "24.0.0"), ("24", "24.19.0"), ("3.12", "3.12.10"), ("", "0.12.10")]
)
def test_exact_versions_of_the_series_are_taken(series: str, version: str) -> None:
    assert choice(series).check(version) == version


@pytest.mark.parametrize(
    "version",
    [
        "24",
        "24.1",
        "24.x.y",
        "v24.1.0",
        "24.1.0-rc1",
        "24.1.0 ",
        "",
        "24.1.0.0",
        "latest",
        "\uff12\uff14.1.0",
    ],
)
def test_what_is_not_an_exact_version_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="is not an exact version") as raised:
        choice("24").check(version)
    assert raised.value.hint is not None
    assert "24.x.y" in raised.value.hint


@pytest.mark.parametrize(
    ("series", "version"),
    [("24", "22.1.0"), ("24", "240.1.0"), ("24", "2.4.0"), ("3.12", "3.13.1"), ("3.1", "3.12.1")],
)
def test_another_series_is_refused(series: str, version: str) -> None:
    with pytest.raises(UsageError, match="is not a version of this recipe"):
        choice(series).check(version)


@pytest.mark.parametrize(("series", "form"), [("24", "24.x.y"), ("3.12", "3.12.x"), ("", "x.y.z")])
def test_the_form_of_a_version_shows_what_is_fixed(series: str, form: str) -> None:
    assert choice(series).form == form


@given(st.text(alphabet="[]={}\"'\n ._-#abc01tru,", max_size=60))
def test_any_text_is_a_recipe_or_a_contract_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(text)
    with pytest.raises(ContractError):
        load_recipe(path)
