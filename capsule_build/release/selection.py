"""Which capsules a release is of, and what its options say about each of them.

A capsule is named `RECIPE` or `RECIPE:LIBC`. An option that is about an input (`--source`,
`--runtime-version`) is for all capsules that have an input of that name; `RECIPE:` or `RECIPE:LIBC:` before
the name means some.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..plan import BuildOptions, make_plan
from ..recipes import check_libc, find_recipe
from ..runtime.errors import UsageError
from ..runtime.platforms import host_architecture

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..pins import PinSet
    from ..plan import BuildPlan
    from ..recipes import Recipe


@dataclass(frozen=True)
class Selected:
    """A recipe, and the libc to build it for."""

    recipe: Recipe
    libc: str

    @property
    def scopes(self) -> tuple[str, ...]:
        """The ways in which an option can mean it."""
        return ("", self.recipe.id, f"{self.recipe.id}:{self.libc}")


@dataclass(frozen=True)
class Scoped:
    """The value of an option that is about an input of some capsules.

    Attributes:
        option: The option and its value, for messages.
        scope: `RECIPE`, `RECIPE:LIBC`, or nothing: all that have the input.
        name: The input's name.
        value: What is said about it.
    """

    option: str
    scope: str
    name: str
    value: str


def select(
    recipes: Mapping[str, Recipe], names: Sequence[str], *, everything: bool, libcs: Sequence[str] = ()
) -> list[Selected]:
    """Return the capsules that are meant, each once, in the order in which they are named.

    Args:
        recipes: All recipes.
        names: `RECIPE` or `RECIPE:LIBC`.
        everything: Whether all recipes are meant.
        libcs: Only these; none: all that a recipe is made for.

    Raises:
        UsageError: A name means nothing, or nothing is named.
    """
    if everything and names:
        raise UsageError("--all and names of recipes were given.", hint="Give one of them.")
    if not everything and not names:
        raise UsageError("Which capsules?", hint=f"Name recipes ({', '.join(recipes)}), or say --all.")
    chosen: dict[tuple[str, str], Selected] = {}
    for name in names or recipes:
        recipe_id, _, libc = name.partition(":")
        recipe = find_recipe(recipes, recipe_id)
        for each in (check_libc(recipe, libc),) if libc else recipe.libcs:
            if not libcs or each in libcs:
                chosen[recipe.id, each] = Selected(recipe, each)
    for libc in libcs:
        if libc not in {selected.libc for selected in chosen.values()}:
            raise UsageError(f"--libc {libc}: none of the capsules is made for it.")
    return list(chosen.values())


def parse_scoped(option: str, values: Iterable[str]) -> list[Scoped]:
    """Read the values of an option that is about inputs.

    Raises:
        UsageError: One isn't of the form.
    """
    parsed = []
    for text in values:
        key, _, value = text.partition("=")
        scope, _, name = key.rpartition(":")
        if not name or not value:
            raise UsageError(f"{option} '{text}' is not of the form [RECIPE[:LIBC]:]NAME=VALUE.")
        parsed.append(Scoped(f"{option} {text}", scope, name, value))
    return parsed


def plan_release(
    selected: Sequence[Selected],
    pins: PinSet,
    *,
    dist: Path,
    sources: Sequence[Scoped] = (),
    versions: Sequence[Scoped] = (),
) -> list[BuildPlan]:
    """Decide what the capsules of a release are.

    Args:
        selected: The capsules.
        pins: The pinned inputs.
        dist: Where the bundles are, or go.
        sources: The user's own inputs.
        versions: Exact versions of runtimes.

    Raises:
        UsageError: An option is about no input of these capsules, or a value doesn't hold.
        InputError: A component has no pin for the platform.
    """
    used: set[Scoped] = set()
    plans = []
    for each in selected:
        choices = {choice.name: choice for choice in each.recipe.runtimes}
        given = _meant(sources, each, choices.keys() | each.recipe.component_names)
        asked = _meant(versions, each, choices)
        for name, scoped in asked.items():
            choices[name].check(scoped.value, option=scoped.option.removesuffix(scoped.value).rstrip("="))
        used.update(given.values(), asked.values())
        options = BuildOptions(
            libc=each.libc,
            architecture=host_architecture(),
            build_architecture=host_architecture(),
            versions={name: scoped.value for name, scoped in asked.items()},
            sources={name: _existing(scoped) for name, scoped in given.items()},
        )
        plans.append(make_plan(each.recipe, options, pins, dist=dist))
    for scoped in (*sources, *versions):
        if scoped not in used:
            raise UsageError(f"{scoped.option}: none of the capsules has that input.")
    return plans


def _meant(values: Iterable[Scoped], each: Selected, names: Iterable[str]) -> dict[str, Scoped]:
    meant: dict[str, Scoped] = {}
    for scoped in values:
        if scoped.scope in each.scopes and scoped.name in names:
            other = meant.setdefault(scoped.name, scoped)
            if other is not scoped:
                raise UsageError(
                    f"{other.option} and {scoped.option} are about the same input of {each.recipe.id} "
                    f"for {each.libc}."
                )
    return meant


def _existing(scoped: Scoped) -> Path:
    path = Path(scoped.value)
    if not path.exists():
        raise UsageError(f"{scoped.option}: there is no such file.")
    return path
