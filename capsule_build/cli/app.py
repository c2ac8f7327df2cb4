"""The command `capsule-build`: puts the commands together, and turns errors into messages and exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from .. import __version__
from ..recipes import load_recipes
from ..resources import recipes_dir
from ..runtime.errors import EXIT_INTERRUPTED, CapsuleError, ContractError, UsageError
from . import build, bundles, cache, doctor, lock, pins, trial
from .output import err, print_error

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

RECIPES_OPTION = "--recipes"
_RECIPES_VARIABLE = "CAPSULE_RECIPES"
_DEBUG_VARIABLE = "CAPSULE_DEBUG"
_EXIT_TERMINATED = 128 + signal.SIGTERM


def make_app(folder: Path) -> typer.Typer:
    """Return the command line, with a command for each recipe in `folder`.

    Raises:
        CapsuleError: The recipes can't be read.
    """
    app = typer.Typer(
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
        version: Annotated[
            bool,
            typer.Option(
                "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
            ),
        ] = False,
    ) -> None:
        """Build runtime capsules: toolchains that run in any Linux image, whatever it holds."""
        del recipes, version

    known = load_recipes(folder)
    for module in (bundles, lock, pins, cache, doctor):
        module.register(app)
    trial.register(app, known, folder)
    build.register(app, known, folder)
    names = [command.name for command in app.registered_commands] + [
        group.name for group in app.registered_groups
    ]
    for recipe in known.values():
        if names.count(recipe.id) > 1:
            raise ContractError(f"The recipe {recipe.path} has the name of a command: '{recipe.id}'.")
    return app


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    for name in ("stdout", "stderr"):
        # Who closed it wants to hear nothing; that is no reason to fail.
        if getattr(sys, name) is None:
            setattr(sys, name, io.StringIO())
    try:
        return _run(list(argv))
    except CapsuleError as error:
        print_error(error)
        return error.exit_code
    except TyperException as error:
        if error.format_message():
            print_error(
                UsageError(error.format_message(), hint="'capsule-build --help' lists what there is.")
            )
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        err().print("Interrupted.")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who reads our output has had enough; Python must not try to flush it once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print_error(CapsuleError(f"{where}{error.strerror or error}."))
        return 1
    except Exception as error:  # the last resort: no traceback reaches a user
        if os.environ.get(_DEBUG_VARIABLE):
            raise
        print_error(
            CapsuleError(
                f"capsule-build itself failed: {type(error).__name__}: {error}",
                hint=f"This is a defect. {_DEBUG_VARIABLE}=1 shows where; please report that.",
            )
        )
        return 1


def _run(argv: list[str]) -> int:
    folder, rest = _take_recipes(argv)
    result = make_app(folder)(rest, prog_name="capsule-build", standalone_mode=False)
    if result == EXIT_INTERRUPTED:
        # Typer has turned a Ctrl-C into its exit code.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


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


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"capsule-build {__version__}")
        raise typer.Exit


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    # As an exception, so that everything that is open is cleaned up on the way out.
    raise SystemExit(_EXIT_TERMINATED)
