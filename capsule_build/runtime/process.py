"""The one place that starts other programs.

Programs are started from a list of arguments, never through a shell. What a failing program said is in
the error, so that nobody has to run it again to learn why it failed.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from .collecting import FloodError, TimeIsOverError, collect
from .errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_TAIL_BYTES = 4000
"""How much of a failing program's output an error repeats."""

MOST_BYTES = 1 << 30
"""How much a program may print: it is held in memory. A capsule that is packed by one has some hundred MB."""

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that would end this process, and that an attached program gets instead."""


class ProgramMissingError(CapsuleError):
    """The program to start is not installed."""


class CommandError(CapsuleError):
    """A program ended with a status other than 0, or didn't end in time.

    Attributes:
        result: What the program left; `None` when it was stopped for its time.
    """

    def __init__(self, message: str, *, result: Result | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result


class OutputError(CommandError):
    """A program printed more than can be held, and was stopped."""


@dataclass(frozen=True)
class Result:
    """What a program left: its exit status (negative: the signal that ended it) and its output."""

    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text; undecodable bytes are escaped."""
        return self.stdout.decode("utf-8", "backslashreplace")

    @property
    def error_text(self) -> str:
        """Standard error as text; undecodable bytes are escaped."""
        return self.stderr.decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Conversation:
    """A program that is talked to.

    Attributes:
        process: The program.
        input: Goes to its standard input, without a buffer between.
        output: Comes from its standard output, without a buffer between.
    """

    process: subprocess.Popen[bytes]
    input: IO[bytes]
    output: IO[bytes]

    def send(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            BrokenPipeError: The program is gone.
        """
        left = memoryview(data)
        while left:
            left = left[self.input.write(left) or 0 :]

    def close(self) -> int:
        """Close both ends, wait for its end and return its status (negative: the signal that ended it)."""
        self.input.close()
        self.output.close()
        return self.process.wait()


def quote(argv: Sequence[str]) -> str:
    """Return a command line that a person can paste into a shell."""
    return shlex.join(argv)


def run(
    argv: Sequence[str],
    *,
    stdin: bytes | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    check: bool = True,
) -> Result:
    """Run a program to its end and return what it left.

    Args:
        argv: The program and its arguments.
        stdin: Bytes, or a file, for its standard input; without, its input is empty.
        env: The whole environment; without, the caller's own.
        cwd: The working folder.
        timeout: Seconds after which the program and its children are killed.
        check: Whether a status other than 0 is an error.

    Raises:
        ProgramMissingError: The program isn't there.
        CommandError: It failed, or took too long.
        OutputError: It printed more than `MOST_BYTES`.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE if isinstance(stdin, bytes) else (stdin or subprocess.DEVNULL),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=None if env is None else dict(env),
            cwd=cwd,
            start_new_session=timeout is not None,
        )
    except FileNotFoundError as error:
        raise ProgramMissingError(f"'{argv[0]}' is not installed, or not on PATH.") from error
    except OSError as error:
        raise ProgramMissingError(f"'{argv[0]}' can't be started: {error.strerror}.") from error
    deadline = None if timeout is None else time.monotonic() + timeout
    with process:
        try:
            stdout, stderr = collect(
                process, stdin if isinstance(stdin, bytes) else None, deadline, most=MOST_BYTES
            )
            process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except (TimeIsOverError, subprocess.TimeoutExpired) as error:
            _kill(process, with_children=timeout is not None)
            raise CommandError(f"'{quote(argv)}' didn't end within {timeout:g} s.", result=None) from error
        except FloodError as error:
            _kill(process, with_children=timeout is not None)
            raise OutputError(
                f"'{quote(argv)}' printed more than {MOST_BYTES >> 20} MiB, and was stopped.", result=None
            ) from error
        except BaseException:
            _kill(process, with_children=timeout is not None)
            raise
    result = Result(tuple(argv), process.returncode, stdout, stderr)
    if check and result.code != 0:
        said = (result.stderr or result.stdout)[-_TAIL_BYTES:].decode("utf-8", "backslashreplace").strip()
        raise CommandError(
            f"'{quote(argv)}' failed with status {result.code}" + (f":\n{said}" if said else "."),
            result=result,
        )
    return result


def _kill(process: subprocess.Popen[bytes], *, with_children: bool) -> None:
    """End a program at once; one in a session of its own, with its children: they hear no Ctrl-C either."""
    if with_children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def attach(argv: Sequence[str]) -> int:
    """Run a program with this process's own input, output and terminal, and return its exit status.

    A Ctrl-C reaches it from the terminal, as it reaches this process: it is what decides how to end. Other
    signals that would end this process are passed on to it.

    Returns:
        Its status; for a signal that ended it, 128 and the signal's number, as shells have it.

    Raises:
        ProgramMissingError: The program isn't there.
    """
    held: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: object) -> None:
        if child is None:
            held.append(number)
        else:
            child.send_signal(number)

    # Before the program starts, so that none is lost. They are functions, since the program would inherit
    # that a signal is ignored.
    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        child = subprocess.Popen(list(argv))
        for number in held:
            child.send_signal(number)
        code = child.wait()
    except OSError as error:
        raise ProgramMissingError(f"'{argv[0]}' can't be started: {error.strerror}.") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def start(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that goes on by itself (a daemon), in a session of its own, and return at once.

    Args:
        argv: The program and its arguments.
        env: The whole environment; without, the caller's own.
        output: A file for what it prints; without, that is dropped.

    Raises:
        ProgramMissingError: The program isn't there.
    """
    sink = output or subprocess.DEVNULL
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ProgramMissingError(f"'{argv[0]}' is not installed, or not on PATH.") from error


def converse(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> Conversation:
    """Start a program that is talked to by its standard input and output, and return at once.

    Args:
        argv: The program and its arguments.
        env: The whole environment; without, the caller's own.
        cwd: The working folder.

    Raises:
        ProgramMissingError: The program isn't there.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=None if env is None else dict(env),
            cwd=cwd,
        )
    except OSError as error:
        raise ProgramMissingError(f"'{argv[0]}' can't be started: {error.strerror}.") from error
    return Conversation(process, cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout))
