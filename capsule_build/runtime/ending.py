"""Ending a program in an environment when it is given up, with all that it started.

Its time may be over, or this process is interrupted. An engine that is asked to give up leaves what runs in
the container running. So a program gets a variable of its own, which its children inherit, and whatever has
that is killed there.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final

from .errors import CapsuleError
from .process import ProgramMissingError
from .target import SHELL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .environment import Environment
    from .process import Result

VARIABLE: Final = "CAPSULE_RUN_ID"
"""What a program and its children are known by."""

_SECONDS: Final = 20.0

_END: Final = """
# $1: NAME=VALUE. Builtins are all that it takes, since an image may have nothing but its shell. The shells'
# 'read' leaves the zero bytes between variables out. Another round finds what was started meanwhile.
for round in 1 2 3 4 5; do
  found=
  for process in /proc/[0-9]*; do
    [ -r "$process/environ" ] || continue
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in
        *"$1"*) kill -9 "${process#/proc/}" && found=1 ;;
      esac
    done <"$process/environ"
  done 2>/dev/null
  [ -n "$found" ] || exit 0
done
"""


def run_in_time(
    environment: Environment, argv: Sequence[str], *, env: Mapping[str, str] | None, timeout: float
) -> Result:
    """Run a program as `Environment.run` does, and end it there, with its children, if it is given up.

    That may be for its time or its output, or for whatever else is raised here meanwhile, as by a Ctrl-C.
    A child that threw its variables away goes on. So does everything in an environment without a shell.

    Args:
        environment: Where.
        argv: The program and its arguments.
        env: Variables on top of the environment's own.
        timeout: Seconds that it may take.

    Raises:
        CommandError: Its time was over, or it printed too much.
    """
    token = secrets.token_hex(16)
    try:
        return environment.run(argv, env={**(env or {}), VARIABLE: token}, timeout=timeout)
    except ProgramMissingError:
        raise
    except BaseException:
        # That it can't be ended adds nothing to what is said.
        with contextlib.suppress(CapsuleError):
            environment.run([SHELL, "-c", _END, "end", f"{VARIABLE}={token}"], timeout=_SECONDS)
        raise
