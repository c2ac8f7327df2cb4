"""Running an install command with a capsule: by its launcher, in time, as npm's options say.

The command is run by the capsule's own bash, which is static and so runs in every image. That shell does
three things that can't be left to the environment: it takes other spellings of npm's options away (npm reads
them in any case, and the last one in the environment wins), it ends the command and its children when the
time is over (an engine that is asked to give up leaves them running), and it keeps variables whose names are
no identifiers, which other shells drop.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .ending import run_in_time
from .process import CommandError, OutputError, ProgramMissingError, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .environment import Environment
    from .installing import Installed

CLASSIC: Final = {
    "npm_config_ignore_scripts": "false",
    "npm_config_dangerously_allow_all_scripts": "true",
    "npm_config_strict_allow_scripts": "false",
}
"""npm's options by which the lifecycle scripts of packages run, unreviewed, as they did before npm 11.17."""

FIRST_WAIT: Final = "npm_config_fetch_retry_mintimeout=1000"
"""How long npm waits before it asks a registry again, ms; ten times as long before the time after that.

npm asks again whatever failed, also where a certificate isn't trusted, and waits 10 s and 60 s by itself: an
error that no waiting mends would come after more than a minute. It asks as often as before.
"""

WITHOUT_SCRIPTS: Final = {"npm_config_ignore_scripts": "true"}

_BASH: Final = "libexec/bash"
_TIME_IS_OVER: Final = 124
_NOT_FOUND: Final = 127
_KILLED: Final = 137
"""128 and SIGKILL's number, as shells have it."""
_GRACE_SECONDS: Final = 30.0
_STDERR_CHARACTERS: Final = 4000
_STDOUT_CHARACTERS: Final = 1500

_RUN: Final = """
# $1: seconds; $2: NAME=VALUE of an option of npm, unless there is one; then npm's options as NAME=VALUE;
# an empty word; the command
seconds=$1
usual=$2
shift 2
shopt -s nocasematch
for one in $(compgen -e); do [[ $one != "${usual%%=*}" ]] || usual=; done
[[ -z $usual ]] || export "$usual"
while [[ -n $1 ]]; do
  for one in $(compgen -e); do [[ $one != "${1%%=*}" ]] || unset "$one"; done
  export "$1"
  shift
done
shift
# Job control: the command gets a process group, so that its children end with it.
set -m
trap 'is_late=1' USR1
# What this shell itself says of its jobs is nobody's business.
exec 3>&2 2>/dev/null
"$@" </dev/null 2>&3 3>&- &
job=$!
coproc watch {
  read -r -t "$seconds" _ && exit
  # The time is over, or this shell is gone.
  kill -USR1 $$
  kill -KILL -- "-$job"
} 3>&-
until wait "$job"; status=$?; [[ $status -lt 128 ]] || ! kill -0 "$job"; do :; done
# The watch may be gone already.
trap '' PIPE
echo >&"${watch[1]}"
# What ended by itself in the last moment has ended well.
[[ -z $is_late || $status -lt 128 ]] || exit 124
exit "$status"
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        command: The command, as a person writes it.
        code: Its exit status; `None`: its time was over.
        said: The end of what it printed: standard error, and standard output behind it.
    """

    command: str
    code: int | None
    said: str

    @property
    def is_right(self) -> bool:
        """Whether it ended with status 0."""
        return self.code == 0


class CapsuleRunner:
    """Runs commands with an installed capsule, to install into its setup root.

    Args:
        environment: Where.
        installed: The capsule.
        env: Variables on top of the environment's own.
        timeout: Seconds that each command may take.
    """

    def __init__(
        self, environment: Environment, installed: Installed, env: Mapping[str, str], timeout: float
    ) -> None:
        self._environment = environment
        self._installed = installed
        self._env = dict(env)
        self._timeout = timeout

    def run(self, command: str | Sequence[str], npm_options: Mapping[str, str]) -> Outcome:
        """Run a command.

        Args:
            command: Text for `/bin/sh -c`, or a program and its arguments.
            npm_options: Options of npm, which count whatever spellings of them the environment has.
        """
        root = self._installed.root
        words = [f"{name}={value}" for name, value in npm_options.items()]
        launcher = [self._installed.launcher, "--setup-root", self._installed.setup_root, "--"]
        argv = [f"{root}/{_BASH}", "-p", "-c", _RUN, "capsule", f"{self._timeout:g}", FIRST_WAIT]
        return _run(self._environment, [*argv, *words, "", *launcher], command, self._env, self._timeout)


def run_natively(
    environment: Environment, command: str | Sequence[str], env: Mapping[str, str], timeout: float
) -> Outcome:
    """Run an install command as it stands, with nothing of a capsule."""
    return _run(environment, [], command, env, timeout)


def _run(
    environment: Environment,
    before: Sequence[str],
    command: str | Sequence[str],
    env: Mapping[str, str],
    timeout: float,
) -> Outcome:
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    shown = command if isinstance(command, str) else quote(command)
    begun = time.monotonic()
    grace = _GRACE_SECONDS if before else 0.0
    try:
        result = run_in_time(environment, [*before, *argv], env=env, timeout=timeout + grace)
    except ProgramMissingError as error:
        return Outcome(shown, _NOT_FOUND, error.message)
    except OutputError as error:
        return Outcome(shown, _KILLED, error.message)
    except CommandError:
        return Outcome(shown, None, "")
    is_late = bool(before) and result.code == _TIME_IS_OVER and time.monotonic() - begun >= timeout
    texts = (_end(result.error_text, _STDERR_CHARACTERS), _end(result.text, _STDOUT_CHARACTERS))
    said = "\n".join(text for text in texts if text)
    return Outcome(shown, None if is_late else result.code, said)


def _end(text: str, characters: int) -> str:
    """Return the last lines of a text, about as many characters as are wanted."""
    text = text.strip()
    if len(text) <= characters:
        return text
    end = text[-characters:]
    return f"[...]\n{end.partition(chr(10))[2] or end}"
