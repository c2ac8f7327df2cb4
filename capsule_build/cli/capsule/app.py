"""The commands of `capsule`, put together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

from ..grammar import App
from ..guard import end_on_signals, guarded
from ..output import version_option
from . import build, doctor, execution, explaining, installation, log, mcp, registry, setups, worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

_PROGRAM = "capsule"
_COMMANDS = (setups, installation, registry, explaining, execution, build, worker, log, mcp, doctor)
_HELP = "Put toolchains into containers that lack them, and run untrusted tasks in a sandbox."


def make_app() -> typer.Typer:
    """Return the command line."""
    app = App(
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
    )

    @app.callback()
    def options(
        version: Annotated[bool, version_option(_PROGRAM)] = False,
    ) -> None:
        del version

    options.__doc__ = _HELP

    for module in _COMMANDS:
        module.register(app)
    return app


def main(argv: Sequence[str]) -> NoReturn:
    """Run the command line and exit with its code."""
    end_on_signals()
    sys.exit(run(argv))


def run(argv: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    return guarded(_PROGRAM, lambda: make_app()(list(argv), prog_name=_PROGRAM, standalone_mode=False))
