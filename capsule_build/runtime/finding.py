"""Looking for a harness in an environment, and trying it there.

A harness is tried as it will be used: by its absolute path, in the environment's own variables, without anything of a
capsule around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .process import CommandError, ProgramMissingError, quote
from .scripts import LOOK
from .target import SHELL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        commands: For each name that was asked for, the absolute paths of it on PATH, in order.
        below: The names that are there in the setup root's `bin`.
        variables: Those of `WATCHED` that are set; of values that have several lines, the first.
        has_env: Whether there is a `/usr/bin/env`.
        has_home: Whether HOME names a folder that can be written to.
    """

    commands: Mapping[str, tuple[str, ...]]
    below: frozenset[str]
    variables: Mapping[str, str]
    has_env: bool
    has_home: bool


@dataclass(frozen=True)
class Candidate:
    """A harness that may be there: its path, and the command that tries it."""

    path: str
    check: tuple[str, ...]
    is_sealed: bool
    """Whether it lies in a setup root."""


@dataclass(frozen=True)
class Trial:
    """How a try ended: why it failed; `None`: it didn't."""

    candidate: Candidate
    failure: str | None


def look(environment: Environment, *names: str, setup_root: str = "") -> Surroundings:
    """Look around in an environment; nothing is changed.

    Where it has no shell, the usual folders count as its PATH.

    Args:
        environment: Where to.
        names: Commands to be looked for.
        setup_root: A setup root whose commands count, too.
    """
    command = [SHELL, "-c", LOOK, "look", setup_root, *names, "", *WATCHED]
    try:
        result = environment.run(command, timeout=_LOOK_SECONDS)
    except ProgramMissingError:
        usual = {name: tuple(f"{folder}/{name}" for folder in _USUAL) for name in names}
        return Surroundings(usual, frozenset(), {}, has_env=False, has_home=False)
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
    )


def names_of(harness: Harness) -> tuple[str, ...]:
    """Return the names that have to be looked for on PATH to find and try a harness."""
    names = dict.fromkeys((harness.entrypoint, harness.check_command[0]))
    return tuple(name for name in names if "/" not in name)


def in_image(harness: Harness, around: Surroundings) -> list[Candidate]:
    """Return what may be the harness among an environment's own programs, best first."""
    if harness.entrypoint.startswith("/"):
        paths: Sequence[str] = (harness.entrypoint,)
    else:
        paths = around.commands.get(harness.entrypoint, ())
    return [Candidate(path, _check(harness, path, None, around), is_sealed=False) for path in paths]


def in_setup_root(harness: Harness, setup_root: str, around: Surroundings) -> Candidate:
    """Return what must be the harness once it is installed into a setup root."""
    path = _below(setup_root, harness.entrypoint)
    return Candidate(path, _check(harness, path, setup_root, around), is_sealed=True)


def try_out(harness: Harness, candidate: Candidate, environment: Environment) -> Trial:
    """Run a harness's check in the environment's own variables."""
    return Trial(candidate, failure_of(harness, candidate, environment))


def failure_of(
    harness: Harness, candidate: Candidate, environment: Environment, env: Mapping[str, str] | None = None
) -> str | None:
    """Return why a check fails, with some variables changed; `None` when it doesn't."""
    line = quote(candidate.check)
    try:
        result = environment.run(candidate.check, env=env, timeout=harness.check_timeout)
    except ProgramMissingError:
        return f"'{candidate.check[0]}' isn't there, or its loader or interpreter isn't"
    except CommandError:
        return f"'{line}' didn't end within {harness.check_timeout:g} s"
    if result.code == 0:
        return None
    said = (result.error_text.strip() or result.text.strip())[-_TAIL_CHARACTERS:]
    return f"'{line}' ended with status {result.code}" + (f":\n{said}" if said else "")


def _check(harness: Harness, path: str, setup_root: str | None, around: Surroundings) -> tuple[str, ...]:
    """Return the command that tries a harness, its program by an absolute path."""
    program, *arguments = harness.check_command
    if program == harness.entrypoint:
        program = path
    elif setup_root is not None and ("/" in program or program in around.below):
        program = _below(setup_root, program)
    elif around.commands.get(program):
        program = around.commands[program][0]
    return (program, *arguments)


def _below(setup_root: str, name: str) -> str:
    if name.startswith("/"):
        return name
    return f"{setup_root}/{name}" if "/" in name else f"{setup_root}/bin/{name}"
