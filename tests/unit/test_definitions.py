from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from capsule_build.cli.definitions import load_definitions
from capsule_build.recipes import load_recipes
from capsule_build.resources import recipes_dir, templates_dir
from capsule_build.runtime.errors import ContractError, UsageError
from capsule_build.runtime.platforms import Platform
from tests import fakes, tiny_recipe

if TYPE_CHECKING:
    from pathlib import Path


def test_the_projects_own_definitions_fit_together() -> None:
    definitions = load_definitions(recipes_dir())
    assert definitions.templates == templates_dir()
    for recipe in load_recipes(recipes_dir()).values():
        assert (templates_dir() / recipe.template).is_file()
        runtimes = tuple(choice.component for choice in recipe.runtimes)
        for name in (*runtimes, *recipe.shipped, *recipe.linked, *recipe.licences, *recipe.build):
            assert name in definitions.components
    for pin in definitions.pins.pins:
        component = definitions.components[pin.component]
        assert pin.target in component.targets
        assert (pin.kind, pin.package, pin.license) == (component.kind, component.package, component.license)


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("libc", ["glibc", "musl"])
def test_node24_has_a_pin_for_everything_on_every_platform(architecture: str, libc: str) -> None:
    pins = load_definitions(recipes_dir()).pins
    recipe = load_recipes(recipes_dir())["node24"]
    for component in ("node", *recipe.shipped, *recipe.linked, *recipe.licences, *recipe.build):
        pin = pins.find(component, Platform(architecture, libc))
        assert pin.target in {f"{architecture}-{libc}", architecture, "any"}


def test_a_users_folder_brings_its_own_templates(tmp_path: Path) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    definitions = load_definitions(folder)
    assert definitions.templates == folder / "templates"
    assert set(definitions.components) == {"tool", "helper", "musl-dev", "texts", "busybox-static"}
    assert definitions.pins.epoch == tiny_recipe.EPOCH


def test_without_templates_of_its_own_a_folder_uses_the_projects(tmp_path: Path) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    shutil.rmtree(folder / "templates")
    assert load_definitions(folder).templates == templates_dir()


@pytest.mark.parametrize("missing", ["components.toml", "pins.lock.json"])
def test_a_folder_that_lacks_a_file_is_refused_by_its_name(tmp_path: Path, missing: str) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    (folder / missing).unlink()
    with pytest.raises(UsageError, match=missing) as raised:
        load_definitions(folder)
    assert raised.value.hint


def test_damaged_pins_are_refused_by_the_files_name(tmp_path: Path) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    pins = folder / "pins.lock.json"
    pins.write_text(pins.read_text().replace("texts_5-1", "texts_6-1"))
    with pytest.raises(ContractError, match=r"pins\.lock\.json.*checksum"):
        load_definitions(folder)


def test_a_recipe_that_names_what_the_components_lack_is_refused(tmp_path: Path) -> None:
    folder = fakes.World(tmp_path).recipes
    recipe = load_recipes(folder)["tiny"]
    path = folder / "components.toml"
    path.write_text(path.read_text().replace("[helper", "[hepler"))
    load_definitions(folder)
    with pytest.raises(ContractError, match=r"names 'helper', which .*components\.toml lacks"):
        load_definitions(folder, recipe)
