"""Reads what commands work from: recipes, components, pins, and the templates beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..components import Component, load_components
from ..pins import PinSet, load_pins
from ..resources import templates_dir
from ..runtime.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..recipes import Recipe


@dataclass(frozen=True)
class Definitions:
    """What a folder of recipes defines."""

    components: Mapping[str, Component]
    pins: PinSet
    templates: Path


def load_definitions(folder: Path, *recipes: Recipe) -> Definitions:
    """Read the definitions of a folder of recipes.

    Templates are the folder's own where it has a `templates` folder in it, else the project's.

    Args:
        folder: The folder.
        recipes: The recipes that are worked from: what they name has to be there.

    Raises:
        CapsuleError: A file is missing or malformed, or lacks a component of a recipe.
    """
    own = folder / "templates"
    components = load_components(folder / "components.toml")
    for recipe in recipes:
        for name in sorted(recipe.component_names - set(components)):
            raise ContractError(
                f"The recipe {recipe.path} names '{name}', which {folder}/components.toml lacks."
            )
    return Definitions(
        components=components,
        pins=load_pins(folder / "pins.lock.json"),
        templates=own if own.is_dir() else templates_dir(),
    )
