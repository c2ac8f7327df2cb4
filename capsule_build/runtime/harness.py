"""The specification of a harness: how it is found, installed and checked. A JSON object, read strictly.

A harness is a program that works in an environment: a coding agent's command, say. `docs/harnesses.md`
describes each key.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
import shlex
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .errors import UsageError
from .registry import check_tag
from .strict_json import JsonError, loads_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

INSTALL_SECONDS: Final = 900.0
"""How long an install command may take, where a harness doesn't say."""

CHECK_SECONDS: Final = 60.0
"""How long a check may take, where a harness doesn't say."""

_MOST_SECONDS: Final = 7 * 24 * 60 * 60

_KEYS: Final = (
    *("install_strategy", "entrypoint", "check_command", "setup_capsule_tag", "install_command"),
    *("openhands_version", "upload", "npm_cache", "wheelhouse", "needs", "install_env"),
    *("install_timeout", "check_timeout"),
)
_MANAGERS: Final = ("npm", "npx", "node", "pip", "python", "python3", "uv", "uvx")
"""The commands of capsules: an install command that begins with one needs a capsule that has it."""

_OPENHANDS: Final = "pip install openhands-sdk=={0} openhands-tools=={0}"
_OPENHANDS_CHECK: Final = ("python", "-c", "import openhands.sdk, openhands.tools")
_VERSION: Final = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\.dev[0-9]+)?")
_VARIABLE: Final = re.compile(r"[^=\0]+")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_WORD_PARTS: Final = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[();<>|&$`]", re.DOTALL)
_EXPANSIONS: Final = re.compile(r"(?:\\.|[^$`\\])*([$`])", re.DOTALL)


class Strategy(Enum):
    """What is done about a harness."""

    PREINSTALLED = "preinstalled"
    """It must be there."""

    INSTALL_IF_MISSING = "install_if_missing"
    """It is installed unless it is there, and works."""

    INSTALL = "install"
    """It is installed, whatever is there."""

    UPLOAD = "upload"
    """A tree or archive of this machine is put into the setup root."""


@dataclass(frozen=True)
class Harness:
    """What a harness is, and how it comes into an environment.

    Attributes:
        strategy: What is done about it.
        entrypoint: Its command: a name, an absolute path, or a path below the setup root.
        check_command: What must end with status 0 where it works: a command and its arguments.
        setup_capsule_tag: The capsule that it is installed with; `None`: nothing of capsules happens.
        install_command: What installs it: text for `/bin/sh -c`, or a program and its arguments.
        install_env: Variables of the install command, and of nothing else.
        install_timeout: Seconds that installing may take.
        check_timeout: Seconds that a check may take.
        needs: Tools that the capsule must have.
        upload: For `UPLOAD`: the folder or archive on this machine.
        npm_cache: A filled npm cache on this machine: npm then works without a network.
        wheelhouse: A folder of wheels on this machine: pip and uv then work without a network.
    """

    strategy: Strategy
    entrypoint: str
    check_command: tuple[str, ...]
    setup_capsule_tag: str | None = None
    install_command: str | tuple[str, ...] | None = None
    install_env: Mapping[str, str] = field(default_factory=dict)
    install_timeout: float = INSTALL_SECONDS
    check_timeout: float = CHECK_SECONDS
    needs: tuple[str, ...] = ()
    upload: Path | None = None
    npm_cache: Path | None = None
    wheelhouse: Path | None = None

    @property
    def digest(self) -> str:
        """The SHA-256 of all that it says: two set-ups of one digest are the same."""
        values = {name: _plain(value) for name, value in vars(self).items()}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def load_harness(path: Path) -> Harness:
    """Read a harness from a JSON file; paths in it are relative to its folder.

    Raises:
        UsageError: There is no such file, or it isn't right; the message names the key.
    """
    try:
        document = loads_object(path.read_bytes())
    except OSError as error:
        raise UsageError(f"The harness '{path}' can't be read: {error.strerror}.") from error
    except JsonError as error:
        raise UsageError(f"The harness '{path}' is not right: {error}.") from error
    return parse_harness(document, folder=path.parent, name=f"The harness '{path}'")


def parse_harness(
    document: Mapping[str, object], *, folder: Path = Path(), name: str = "The harness"
) -> Harness:
    """Read a harness from a mapping, as JSON gives it.

    Args:
        document: The keys of the specification; any other is refused.
        folder: What relative paths of this machine are relative to.
        name: How errors name it, as a sentence begins.

    Raises:
        UsageError: It isn't right; the message names the key.
    """
    return _Reader(document, folder, name).harness()


class _Reader:
    """Reads one specification."""

    def __init__(self, document: Mapping[str, object], folder: Path, name: str) -> None:
        self._document = document
        self._folder = folder
        self._name = name

    def harness(self) -> Harness:
        unknown = sorted(set(self._document) - set(_KEYS))
        if unknown:
            near = difflib.get_close_matches(unknown[0], _KEYS, n=1)
            meant = f"Is it {near[0]!a}? " if near else ""
            raise self._wrong(f"there is no key {unknown[0]!a}", f"{meant}The keys are {', '.join(_KEYS)}.")
        strategy = self._strategy()
        command = self._install_command()
        version = self._openhands_version(command)
        if version is not None:
            command = _OPENHANDS.format(version)
        check = self._words("check_command") or (_OPENHANDS_CHECK if version is not None else ())
        entrypoint = self._text("entrypoint") or (check[0] if check else None)
        if entrypoint is None:
            raise self._wrong("it has neither an 'entrypoint' nor a 'check_command'")
        self._check_entrypoint(entrypoint)
        harness = Harness(
            strategy=strategy,
            entrypoint=entrypoint,
            check_command=check or (entrypoint, "--version"),
            setup_capsule_tag=self._tag(),
            install_command=command,
            install_env=self._variables(),
            install_timeout=self._seconds("install_timeout", INSTALL_SECONDS),
            check_timeout=self._seconds("check_timeout", CHECK_SECONDS),
            needs=self._needs(command, version),
            upload=self._path("upload"),
            npm_cache=self._path("npm_cache"),
            wheelhouse=self._path("wheelhouse"),
        )
        self._check_together(harness, version)
        return harness

    def _check_together(self, harness: Harness, version: str | None) -> None:
        """Check what lies between keys."""
        strategy, tag = harness.strategy, harness.setup_capsule_tag
        installs = strategy in (Strategy.INSTALL, Strategy.INSTALL_IF_MISSING)
        if installs and not harness.install_command:
            raise self._wrong(f"the strategy '{strategy.value}' needs an 'install_command'")
        if strategy is Strategy.UPLOAD and harness.install_command:
            raise self._wrong("what is uploaded is not installed by an 'install_command'")
        if (strategy is Strategy.UPLOAD) != (harness.upload is not None):
            raise self._wrong("'upload' and the strategy 'upload' belong together")
        if strategy is Strategy.UPLOAD and tag is None:
            raise self._wrong("what is uploaded goes into a setup root, which needs a 'setup_capsule_tag'")
        if version is not None and installs and tag is None:
            raise self._wrong(
                "'openhands_version' needs a 'setup_capsule_tag' of a capsule with Python",
                "Such as: python312-v1.",
            )
        if tag is None and (harness.npm_cache or harness.wheelhouse):
            raise self._wrong(
                "'npm_cache' and 'wheelhouse' go into a setup root, which needs a 'setup_capsule_tag'"
            )
        if tag is None and "/" in harness.entrypoint and not harness.entrypoint.startswith("/"):
            raise self._wrong(
                f"the 'entrypoint' {harness.entrypoint!a} lies below a setup root, "
                "which needs a 'setup_capsule_tag'"
            )

    def _strategy(self) -> Strategy:
        text = self._text("install_strategy") or Strategy.INSTALL_IF_MISSING.value
        try:
            return Strategy(text)
        except ValueError as error:
            names = ", ".join(strategy.value for strategy in Strategy)
            raise self._wrong(f"'install_strategy' is {text!a}", f"The strategies are {names}.") from error

    def _tag(self) -> str | None:
        tag = self._text("setup_capsule_tag")
        if tag is not None:
            check_tag(tag)
        return tag

    def _install_command(self) -> str | tuple[str, ...] | None:
        value = self._document.get("install_command")
        if isinstance(value, str):
            return self._text("install_command")
        return self._words("install_command") or None

    def _openhands_version(self, command: object) -> str | None:
        version = self._text("openhands_version")
        if version is None:
            return None
        if command is not None:
            raise self._wrong("'openhands_version' stands for an 'install_command': only one of both can be")
        if not _VERSION.fullmatch(version):
            raise self._wrong(
                f"'openhands_version' is {version!a}", "A version is numbers and dots, such as 1.23.0."
            )
        return version

    def _needs(self, command: str | tuple[str, ...] | None, version: str | None) -> tuple[str, ...]:
        if "needs" in self._document:
            return self._list("needs")
        needs = {"pip", "python"} if version is not None else {_first_word(command)} & set(_MANAGERS)
        if self._document.get("npm_cache") is not None:
            needs.add("npm")
        if self._document.get("wheelhouse") is not None:
            needs.add("pip")
        return tuple(sorted(needs))

    def _check_entrypoint(self, entrypoint: str) -> None:
        parts = entrypoint.removeprefix("/").split("/")
        if any(part in ("", ".", "..") for part in parts) or entrypoint.startswith("-"):
            raise self._wrong(
                f"'entrypoint' is {entrypoint!a}",
                "It is a command's name, an absolute path, or a plain path below the setup root.",
            )

    def _words(self, key: str) -> tuple[str, ...]:
        """Return a command that is run without a shell: a list of words, or text that is taken apart."""
        value = self._document.get(key)
        if not isinstance(value, str):
            return self._list(key)
        text = self._text(key) or ""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise self._wrong(f"'{key}' can't be taken apart: {error}") from error
        found = _shell_syntax(text)
        if found:
            raise self._wrong(
                f"'{key}' holds {found!a}, and no shell runs it",
                'Put single quotes around it, or name a shell: ["/bin/sh", "-c", "..."].',
            )
        return words

    def _list(self, key: str) -> tuple[str, ...]:
        value = self._document.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self._wrong(f"'{key}' is not a list of texts")
        if not value and key != "needs":
            raise self._wrong(f"'{key}' is empty")
        self._check_texts(key, value)
        return tuple(value)

    def _text(self, key: str) -> str | None:
        value = self._document.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._wrong(f"'{key}' is not a text")
        if not value.strip():
            raise self._wrong(f"'{key}' is empty")
        self._check_texts(key, [value])
        return value

    def _check_texts(self, key: str, values: Sequence[str]) -> None:
        if any("\0" in value for value in values):
            raise self._wrong(f"'{key}' holds a NUL, which no program can be given")

    def _path(self, key: str) -> Path | None:
        text = self._text(key)
        if text is None:
            return None
        path = (self._folder / Path(text).expanduser()).absolute()
        if not path.exists():
            raise self._wrong(f"'{key}' names '{path}', which is not there")
        return path

    def _seconds(self, key: str, usual: float) -> float:
        value = self._document.get(key)
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(f"'{key}' is not a number of seconds")
        if not math.isfinite(value) or value <= 0:
            raise self._wrong(f"'{key}' is not more than 0 seconds")
        if value > _MOST_SECONDS:
            raise self._wrong(f"'{key}' is more than a week, {_MOST_SECONDS} seconds")
        return float(value)

    def _variables(self) -> dict[str, str]:
        value = self._document.get("install_env")
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise self._wrong("'install_env' is not an object of texts")
        for name in value:
            if not _VARIABLE.fullmatch(name):
                raise self._wrong(f"'install_env' has {name!a}, which is no name of a variable")
        self._check_texts("install_env", list(value.values()))
        return dict(value)

    def _wrong(self, what: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self._name}: {what}.", hint=hint)


def _shell_syntax(text: str) -> str | None:
    """Return the first character of a command line that only a shell could make sense of."""
    for part in _WORD_PARTS.findall(text):
        if part[0] == '"':
            expansion = _EXPANSIONS.match(part)
            if expansion:
                return expansion[1]
        elif part[0] not in "\\'":
            return str(part)
    return None


def _first_word(command: str | tuple[str, ...] | None) -> str:
    """Return the name of the program that a command starts, as far as that is plain to see; else nothing."""
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command or ())
    except ValueError:
        return ""
    return next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return value.value if isinstance(value, Strategy) else value
