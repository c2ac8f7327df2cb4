"""What both commands do about errors: each becomes one message and an exit code, and never a traceback."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING

import typer
from typer.exceptions import TyperException

from ..runtime.errors import EXIT_INTERRUPTED, CapsuleError, UsageError
from .grammar import is_of_a_command, is_passed_on, tasks_words_apart
from .output import err, print_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_DEBUG_VARIABLE = "CAPSULE_DEBUG"
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_LAST_STANDARD = 2


def guarded(program: str, call: Callable[[], object]) -> int:
    """Run a command line and return its exit code; what goes wrong is printed.

    Args:
        program: The command's name, for messages.
        call: A Typer application in its non-standalone mode: it returns what it exits with.
    """
    _stand_in_for_closed()
    try:
        return _code(call())
    except CapsuleError as error:
        print_error(error)
        return error.exit_code
    except TyperException as error:
        if error.format_message():
            print_error(_refusal(error, program))
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
                f"{program} itself failed: {type(error).__name__}: {error}",
                hint=f"This is a defect. {_DEBUG_VARIABLE}=1 shows where; please report that.",
            )
        )
        return 1


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the program as an exception does, so that all that is open is cleaned up.

    One that is ignored, as by `nohup`, stays ignored.
    """
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminate)


def _stand_in_for_closed() -> None:
    """Put /dev/null where a standard stream is closed: who closed it wants to say or hear nothing.

    Its number is taken by that, too: else the next file would get it, and what programs write there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - open as long as the process
            os.set_inheritable(stream.fileno(), stream.fileno() <= _LAST_STANDARD)
            setattr(sys, name, stream)


def _refusal(error: TyperException, program: str) -> UsageError:
    """Return what is said of a command line that is wrong, and what to read, for the very command."""
    context = getattr(error, "ctx", None)
    if context is None:
        return UsageError(error.format_message(), hint=f"'{program} --help' lists what there is.")
    advice = f"'{context.command_path} --help' lists what there is."
    option = getattr(error, "option_name", None)
    if option is not None and is_of_a_command(option, context.command):
        # What is like it is beside the point then.
        return UsageError(
            f"No such option: {option}", hint=f"Options of a command stand behind its name. {advice}"
        )
    if option is not None and any(is_passed_on(param) for param in context.command.params):
        advice = f"Put '--' before the command. {advice}"
    if option is not None and (words := tasks_words_apart(context, getattr(error, "words", ()), option)):
        line = shlex.join([*context.command_path.split(), *words])
        advice = f"The task's own words go behind '--': {line}\n{advice}"
    return UsageError(error.format_message(), hint=advice)


def _code(result: object) -> int:
    if result == EXIT_INTERRUPTED:
        # Typer has turned a Ctrl-C into its exit code.
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _terminate(number: int, _frame: FrameType | None) -> None:
    # A closed terminal sends one, and a system that shuts down both: the second must not end the cleaning up.
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_IGN)
    raise SystemExit(128 + number)
