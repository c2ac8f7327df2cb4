"""The commands of `capsule`, put together; errors turned into messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from ... import __version__
from ...runtime.errors import EXIT_INTERRUPTED, CapsuleError, UsageError
from ..output import err, print_error
from . import build, doctor, execution

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

_DEBUG_VARIABLE = "CAPSULE_DEBUG"
_COMMANDS = (execution, build, doctor)


def make_app() -> typer.Typer:
    """Return the command line."""
    app = typer.Typer(
        help="Run untrusted tasks in a sandbox.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
    )

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option(
                "--version", "-V", help="Print the version and exit.", is_eager=True, callback=_print_version
            ),
        ] = False,
    ) -> None:
        """Run untrusted tasks in a sandbox."""
        del version

    for module in _COMMANDS:
        module.register(app)
    return app


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        result = make_app()(list(argv), prog_name="capsule", standalone_mode=False)
    except CapsuleError as error:
        print_error(error)
        return error.exit_code
    except TyperException as error:
        if error.format_message():
            print_error(UsageError(error.format_message(), hint="'capsule --help' lists what there is."))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        err().print("Interrupted.")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
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
                f"capsule itself failed: {type(error).__name__}: {error}",
                hint=f"This is a defect. {_DEBUG_VARIABLE}=1 shows where; please report that.",
            )
        )
        return 1
    return result if isinstance(result, int) else 0


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"capsule {__version__}")
        raise typer.Exit


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    # As an exception, so that everything that is open is cleaned up on the way out.
    raise SystemExit(128 + signal.SIGTERM)
