"""Where `capsule` starts. A task takes a few milliseconds, so nothing is imported that it doesn't need."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    argv = sys.argv[1:]
    if argv and argv[0] in ("run", "exec"):
        # What is imported is no garbage, and the process ends before there is much of it.
        gc.disable()
        from .arguments import read_arguments

        arguments = read_arguments(argv)
        if arguments is not None:
            from .execute import execute_and_exit

            execute_and_exit(arguments)
    from .app import main as run_typer

    run_typer(argv)
