"""Looking for a harness in an environment, and trying it there.

A harness is tried as it will be used: by its absolute path, in the environment's own variables, without
anything of a capsule around it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .ending import run_in_time
from .process import CommandError, OutputError, ProgramMissingError, quote
from .scripts import LOOK
from .target import SHELL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .environment import Environment
    from .harness import Harness

WATCHED: Final = (
    *("PATH", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "NODE_OPTIONS", "NODE_PATH"),
    *(
        "NPM_CONFIG_PREFIX",
        "npm_config_prefix",
        "PYTHONHOME",
        "PYTHONPATH",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
    ),
)
"""Variables that are known to lead programs astray."""

_LOOK_SECONDS: Final = 60.0
_USUAL: Final = ("/usr/local/bin", "/usr/bin", "/bin")
_TAIL_CHARACTERS: Final = 2000


@dataclass(frozen=True)
class Surroundings:
    """What programs meet in an environment.

    Attributes:
        commands: For each name that was asked for, the absolute paths of it on PATH, in order; for each path,
            itself, if a program is there.
        below: The names that are there in the setup root's `bin`.
        variables: Those of `WATCHED` that are set; of values that have several lines, the first.
        has_env: Whether there is a `/usr/bin/env`.
        has_home: Whether HOME names a folder that can be written to.
        state: What the setup root's note of the harness says; empty: there is none.
        is_seen: Whether a shell looked; without one, `commands` are where they might be.
    """

    commands: Mapping[str, tuple[str, ...]]
    below: frozenset[str]
    variables: Mapping[str, str]
    has_env: bool
    has_home: bool
    state: str
    is_seen: bool = True


@dataclass(frozen=True)
class Candidate:
    """A program that may be the harness: its path, and the command that tries it."""

    path: str
    check: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """A try that failed, and why."""

    candidate: Candidate
    failure: str


def look(environment: Environment, harness: Harness, setup_root: str = "") -> Surroundings:
    """Look around in an environment for a harness; nothing is changed.

    Where it has no shell, the usual folders count as its PATH.

    Args:
        environment: Where to.
        harness: What for.
        setup_root: A setup root whose commands count, too.
    """
    words = [*dict.fromkeys((harness.entrypoint, harness.check_command[0])), "bash"]
    names = [f"{setup_root}/{word}" if _is_below(word) else word for word in words]
    command = [SHELL, "-c", LOOK, "look", setup_root, state_file(harness), *names, "", *WATCHED]
    try:
        result = environment.run(command, timeout=_LOOK_SECONDS)
    except ProgramMissingError:
        usual = {
            name: (name,) if "/" in name else tuple(f"{folder}/{name}" for folder in _USUAL) for name in names
        }
        return Surroundings(
            {**usual, "bash": ()}, frozenset(), {}, has_env=False, has_home=False, state="", is_seen=False
        )
    said: dict[str, list[str]] = {}
    for line in result.text.splitlines():
        key, _, value = line.partition("\t")
        said.setdefault(key, []).append(value)
    found = [value.partition("\t") for value in said.get("found", ())]
    return Surroundings(
        commands={name: tuple(path for other, _, path in found if other == name) for name in names},
        below=frozenset(said.get("below", ())),
        variables=dict(value.partition("=")[::2] for value in said.get("variable", ())),
        has_env="env" in said,
        has_home="home" in said,
        state=said.get("state", [""])[0],
    )


def state_file(harness: Harness) -> str:
    """Return where in a setup root it stands that a harness's set-up was begun, or finished."""
    return f".harnesses/{hashlib.sha256(harness.entrypoint.encode()).hexdigest()[:16]}"


def in_image(harness: Harness, around: Surroundings) -> list[Candidate]:
    """Return what may be the harness among an environment's own programs, best first."""
    paths = around.commands.get(harness.entrypoint, ())
    return [Candidate(path, _check(harness, path, around, "")) for path in paths]


def in_setup_root(harness: Harness, around: Surroundings, setup_root: str) -> list[Candidate]:
    """Return what may be the harness in a setup root: one program, or none."""
    name = harness.entrypoint
    path = f"{setup_root}/{name}" if _is_below(name) else f"{setup_root}/bin/{name}"
    if name not in around.below and not around.commands.get(path):
        return []
    return [Candidate(path, _check(harness, path, around, setup_root))]


def failure_of(
    harness: Harness, candidate: Candidate, environment: Environment, env: Mapping[str, str] | None = None
) -> str | None:
    """Run a harness's check in the environment's own variables; return why it fails, or `None`.

    Args:
        harness: Whose check.
        candidate: What to try.
        environment: Where.
        env: Changes to its variables.
    """
    line = quote(candidate.check)
    try:
        result = run_in_time(environment, candidate.check, env=env, timeout=harness.check_timeout)
    except ProgramMissingError:
        return f"'{candidate.check[0]}' isn't there, or the loader or interpreter that it names isn't"
    except OutputError as error:
        return error.message.removesuffix(".")
    except CommandError:
        return f"'{line}' didn't end within {harness.check_timeout:g} s"
    if result.code == 0:
        return None
    said = (result.error_text.strip() or result.text.strip())[-_TAIL_CHARACTERS:]
    return f"'{line}' ended with status {result.code}" + (f":\n{said}" if said else "")


def _check(harness: Harness, path: str, around: Surroundings, setup_root: str) -> tuple[str, ...]:
    """Return the command that tries a harness, its program by an absolute path."""
    program, *arguments = harness.check_command
    if program == harness.entrypoint:
        program = path
    elif _is_below(program):
        program = f"{setup_root}/{program}"
    elif program in around.below:
        program = f"{setup_root}/bin/{program}"
    elif around.commands.get(program):
        program = around.commands[program][0]
    return (program, *arguments)


def _is_below(word: str) -> bool:
    """Return whether a command is given by a path below the setup root."""
    return "/" in word and not word.startswith("/")
