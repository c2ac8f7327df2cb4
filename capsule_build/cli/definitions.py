"""Reads what commands work from: recipes, components, pins, and the templates beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..components import Component, load_components
from ..pins import PinSet, load_pins
from ..recipes import load_recipes
from ..resources import templates_dir
from ..runtime.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Definitions:
    """What a folder of recipes defines."""

    components: Mapping[str, Component]
    pins: PinSet
    templates: Path


def load_definitions(folder: Path) -> Definitions:
    """Read the definitions of a folder of recipes.

    Templates are the folder's own where it has a `templates` folder in it, else the project's.

    Raises:
        CapsuleError: A file is missing or malformed.
    """
    own = folder / "templates"
    components = load_components(folder / "components.toml")
    for recipe in load_recipes(folder).values():
        for name in sorted(recipe.component_names - set(components)):
            raise ContractError(
                f"The recipe {recipe.path} names '{name}', which {folder}/components.toml lacks."
            )
    return Definitions(
        components=components,
        pins=load_pins(folder / "pins.lock.json"),
        templates=own if own.is_dir() else templates_dir(),
    )
