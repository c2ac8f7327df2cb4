"""Where recipes come from: `--recipes`, the variable, or the project's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.resources import recipes_dir
from tests import tiny_recipe

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("place", ["before", "after", "equals", "between"])
def test_a_folder_of_recipes_can_be_given_anywhere(
    tmp_path: Path, cli: Callable[..., Ran], place: str
) -> None:
    folder = tiny_recipe.recipe_folder(tmp_path / "mine")
    argv = {
        "before": ("--recipes", folder, "plan", "tiny", "--json"),
        "after": ("plan", "tiny", "--json", "--recipes", folder),
        "equals": ("plan", "tiny", f"--recipes={folder}", "--json"),
        "between": ("plan", "--recipes", folder, "tiny", "--json"),
    }[place]
    assert cli(*argv).json["recipe"] == "tiny"


def test_the_option_wins_over_the_variable(
    tmp_path: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_RECIPES", str(tiny_recipe.recipe_folder(tmp_path / "mine")))
    assert cli("plan", "tiny", "--json").json["recipe"] == "tiny"
    assert_one_message(cli("plan", "node24"), 2, "No such command 'node24'")
    assert cli("plan", "node24", "--json", "--recipes", recipes_dir()).json["recipe"] == "node24"
    monkeypatch.setenv("CAPSULE_RECIPES", "")
    assert cli("plan", "node24", "--json").json["recipe"] == "node24"


def test_behind_two_dashes_nothing_is_an_option(cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("check", "--", "--recipes"), 2, "'--recipes' can't be read")
