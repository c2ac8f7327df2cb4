"""What `capsule run` and `capsule exec` do, and how it is shown."""

from __future__ import annotations

import gc
import os
import sys

from ...runtime.errors import EXIT_INTERRUPTED, CapsuleError
from ...sandbox import jsontext
from ...sandbox.languages import PACKED_SUFFIX, language_of
from ...sandbox.options import ConfigError
from ...sandbox.request import Request, perform, refusal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, BinaryIO, NoReturn

    from .arguments import Arguments

_DEBUG_VARIABLE = "CAPSULE_DEBUG"


def execute_and_exit(arguments: Arguments) -> NoReturn:
    """Do what the arguments ask for and end the process.

    It ends without Python's own way out: an instance that was abandoned still waits on a thread, and taking
    the interpreter apart takes longer than a task.
    """
    code = execute(arguments)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Nobody is left to tell.
            pass
    os._exit(code)


def execute(arguments: Arguments) -> int:
    """Do what the arguments ask for and return the exit code: 0 only if the task succeeded."""
    gc.enable()
    screen = _Screen(arguments)
    try:
        file, sha256 = _file(arguments)
        request = Request(
            file=file,
            args=_arguments(arguments),
            packed=arguments.command == "exec",
            mounts=arguments.mounts,
            packages=arguments.packages,
            shared_compute=arguments.shared_compute,
            trace=arguments.trace,
            trust=arguments.trust,
            sha256=sha256,
        )
        envelope = perform(request, output=screen.output, event=screen.event, say=screen.say)
        return screen.ending(envelope)
    except CapsuleError as error:
        screen.refusal(refusal(error))
        return error.exit_code
    except KeyboardInterrupt:
        screen.say("Interrupted.")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Who reads our output has had enough; nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        screen.say(f"error: {where}{error.strerror or error}.")
        return 1
    except Exception as error:  # the last resort: no traceback reaches a user
        if os.environ.get(_DEBUG_VARIABLE):
            raise
        screen.say(f"error: capsule itself failed: {type(error).__name__}: {error}")
        screen.say(f"This is a defect. {_DEBUG_VARIABLE}=1 shows where; please report that.")
        return 1


def _file(arguments: Arguments) -> tuple[str | None, str | None]:
    """Return the file, and the digest that it must have, where it is a task of the registry lock."""
    name = arguments.file
    if arguments.repeated is not None:
        raise ConfigError(
            f"{arguments.repeated} was given twice.", hint="The task's own words stand behind a '--'."
        )
    if arguments.command != "exec" or name is None or _is_path(name):
        if arguments.lock is not None or arguments.data_dir is not None:
            raise ConfigError("--lock and --data-dir are for a task by its name in a registry lock.")
        return name, None
    from .stored import stored_task

    return stored_task(name, arguments.lock, arguments.data_dir)


def _is_path(name: str) -> bool:
    if "/" in name or name.endswith(PACKED_SUFFIX) or language_of(name) is not None:
        return True
    return os.path.exists(name)  # noqa: PTH110 (loads no pathlib, see `entry`)


def _arguments(arguments: Arguments) -> list[Any]:
    args: list[Any] = list(arguments.args)
    if arguments.args_file is None:
        return args
    try:
        with open(arguments.args_file, "rb") as stream:  # noqa: PTH123 (loads no pathlib, see `entry`)
            read = jsontext.loads(stream.read())
    except (OSError, ValueError) as error:
        raise ConfigError(f"--args-file {arguments.args_file} can't be read: {error}.") from None
    if not isinstance(read, list):
        raise ConfigError(f"--args-file {arguments.args_file}: it must hold a JSON list.")
    return read + args


class _Screen:
    """Standard output and error, shared by the tasks and the command."""

    def __init__(self, arguments: Arguments) -> None:
        self._as_json = arguments.as_json
        self._verbose = arguments.verbose
        self._streams = {
            1: sys.stderr.buffer if arguments.as_json else sys.stdout.buffer,
            2: sys.stderr.buffer,
        }
        self._unfinished = False

    def output(self, number: int, data: bytes) -> None:
        """Pass on what a task prints. With `--json`, all of it goes to standard error."""
        self._write(self._streams[number], data)
        if number == 1 and data:
            self._unfinished = not data.endswith(b"\n")

    def event(self, task: str, state: str) -> None:
        if self._verbose:
            self.say(f"{task}: {state}")

    def say(self, text: str) -> None:
        try:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()
        except OSError:
            # What can't be said doesn't change what is done.
            pass

    def ending(self, envelope: dict[str, Any]) -> int:
        """Print how a task ended, and return the exit code.

        Without `--json` an error is also said on standard error, below the envelope, as a person reads it.
        """
        error = envelope["error"]
        if error is not None and error["error_type"] == "config_error":
            self.refusal(envelope)
            return ConfigError.exit_code
        self._envelope(envelope)
        if error is None:
            return 0
        if not self._as_json:
            self.say(f"error: {error['message']}")
        return 1

    def refusal(self, envelope: dict[str, Any]) -> None:
        """Say why nothing could be run: for people on standard error, with `--json` as an envelope."""
        if self._as_json:
            self._envelope(envelope)
        else:
            self._end_line()
            self.say(f"error: {envelope['error']['message']}")

    def _envelope(self, envelope: dict[str, Any]) -> None:
        """Print the envelope: one line for programs, several for people."""
        if sys.stdout.isatty():
            import json

            text = json.dumps(envelope, indent=2, ensure_ascii=False)
        else:
            text = jsontext.dumps(envelope)
        self._end_line()
        self._write(sys.stdout.buffer, f"{text}\n".encode(sys.stdout.encoding, "backslashreplace"))

    def _end_line(self) -> None:
        """End the line that a task began on standard output, so that what comes next has one of its own."""
        if self._unfinished and not self._as_json:
            self._write(sys.stdout.buffer, b"\n")

    def _write(self, stream: BinaryIO, data: bytes) -> None:
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "standard output" if stream is sys.stdout.buffer else "standard error"
            raise OSError(error.errno, error.strerror, name) from error
