"""The command `capsule-build`: puts the commands together."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ..recipes import load_recipes
from ..resources import recipes_dir
from ..runtime.errors import ContractError, UsageError
from . import build, bundles, cache, doctor, lock, pins, release, reproduce, sign, trial, verify
from .grammar import App
from .guard import end_on_signals, guarded
from .output import version_option

if TYPE_CHECKING:
    from collections.abc import Sequence

RECIPES_OPTION = "--recipes"
_RECIPES_VARIABLE = "CAPSULE_RECIPES"
_PROGRAM = "capsule-build"


def make_app(folder: Path) -> typer.Typer:
    """Return the command line, with a command for each recipe in `folder`.

    Raises:
        CapsuleError: The recipes can't be read.
    """
    app = App(
        help="Build runtime capsules: toolchains that run in any Linux image, whatever it holds.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
    )

    @app.callback()
    def options(
        recipes: Annotated[
            Path,
            typer.Option(
                RECIPES_OPTION, metavar="DIR", help="A folder of recipes, in place of the project's own."
            ),
        ] = folder,
        version: Annotated[bool, version_option(_PROGRAM)] = False,
    ) -> None:
        """Build runtime capsules: toolchains that run in any Linux image, whatever it holds."""
        del recipes, version

    known = load_recipes(folder)
    # In the order of the help.
    build.register(app, known, folder)
    bundles.register(app)
    trial.register(app, known, folder)
    release.register(app, known, folder)
    for module in (sign, verify, lock):
        module.register(app)
    reproduce.register(app, known, folder)
    for module in (pins, cache, doctor):
        module.register(app)
    names = [command.name for command in app.registered_commands] + [
        group.name for group in app.registered_groups
    ]
    for recipe in known.values():
        if names.count(recipe.id) > 1:
            raise ContractError(f"The recipe {recipe.path} has the name of a command: '{recipe.id}'.")
    return app


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    end_on_signals()
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    return guarded(_PROGRAM, lambda: _run(list(argv)))


def _run(argv: list[str]) -> object:
    folder, rest = _take_recipes(argv)
    return make_app(folder)(rest, prog_name=_PROGRAM, standalone_mode=False)


def _take_recipes(argv: list[str]) -> tuple[Path, list[str]]:
    """Take `--recipes DIR` out of the arguments, wherever it stands: the commands depend on it."""
    folder = Path(os.environ[_RECIPES_VARIABLE]) if os.environ.get(_RECIPES_VARIABLE) else recipes_dir()
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return folder, [*rest, word, *words]
        if word == RECIPES_OPTION:
            value = next(words, None)
            if value is None:
                raise UsageError(f"{RECIPES_OPTION} needs a folder.")
            folder = Path(value)
        elif word.startswith(f"{RECIPES_OPTION}="):
            folder = Path(word.partition("=")[2])
        else:
            rest.append(word)
    return folder, rest
