"""What the working folder says for all tasks: `capsule.toml` and `.env`."""

from __future__ import annotations

import os

from ..runtime.regular import read_named
from .options import OPTIONS, ConfigError, make_policy
from .records import Record
from .trust import read_trust

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from .trust import Trust

FILE: Final = "capsule.toml"
_MAX_BYTES: Final = 1 << 20
_DEFAULT: Final = "default_"
_TRACE_KEY: Final = "enabled"
_WORKFLOW_KEYS: Final = ("name", "version", "entrypoint")
_ASSIGNMENT: Final = r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)"


class Project(Record):
    """What `capsule.toml` says.

    Attributes:
        entrypoint: The file that is run when none is named.
        defaults: Options for all tasks that don't set them.
        version: The workflow's version.
        trace: Whether what becomes of its tasks is written into the trace.
        trust: Whose packed files are run; `None`: anybody's.
    """

    entrypoint: str | None = None
    defaults: Mapping[str, Any] = {}
    version: str | None = None
    trace: bool = False
    trust: Trust | None = None


def load_project(folder: str) -> Project:
    """Read a folder's `capsule.toml`; without one, nothing is set.

    Raises:
        ConfigError: It isn't TOML, or holds a key or value that doesn't exist.
    """
    path = f"{folder}/{FILE}"
    text = _read_if_there(path)
    if text is None:
        return Project()
    import tomllib

    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply.") from None
    tables = ("workflow", "tasks", "trace", "trust")
    _only(document, tables, path)
    workflow, tasks, trace, trust = (_table(document, name, path) for name in tables)
    _only(workflow, _WORKFLOW_KEYS, f"{path}: [workflow]")
    for key, value in workflow.items():
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{path}: [workflow] {key} must be a text.")
    _only(tasks, tuple(_DEFAULT + option for option in OPTIONS), f"{path}: [tasks]")
    defaults = {key.removeprefix(_DEFAULT): value for key, value in tasks.items()}
    # Wrong also where every task sets the option itself.
    make_policy(defaults, name="default", function="default", where=f"{path}: [tasks]")
    _only(trace, (_TRACE_KEY,), f"{path}: [trace]")
    enabled = trace.get(_TRACE_KEY, False)
    if not isinstance(enabled, bool):
        raise ConfigError(f"{path}: [trace] {_TRACE_KEY} must be true or false.")
    asked = read_trust(trust, folder, f"{path}: [trust]") if "trust" in document else None
    return Project(workflow.get("entrypoint"), defaults, workflow.get("version"), enabled, asked)


def _read_if_there(path: str) -> bytes | None:
    """Return a file's bytes; `None`: nothing has that name. A link to nothing has it, and can't be read."""
    return read_named(path, limit=_MAX_BYTES, error=ConfigError) if _is_there(path) else None


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        # Reading it says why.
        pass
    return True


def _table(document: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: [{name}] must be a table.")
    return table


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: there is no key '{key}'. Keys: {', '.join(known)}.")


def variables(names: tuple[str, ...], folder: str) -> dict[str, str]:
    """Return the values of environment variables: the process's own, else those of the folder's `.env`."""
    found = {name: os.environ[name] for name in names if name in os.environ}
    if len(found) < len(names):
        written = _dot_env(f"{folder}/.env")
        found |= {name: written[name] for name in names if name not in found and name in written}
    return {name: value for name, value in found.items() if "\0" not in value}


def _dot_env(path: str) -> dict[str, str]:
    data = _read_if_there(path)
    if data is None:
        return {}
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} can't be read: {error}.") from None
    import re

    values = {}
    for line in lines:
        if match := re.fullmatch(_ASSIGNMENT, line.strip()):
            values[match[1]] = _unquoted(match[2].strip())
    return values


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] in "'\"" and (end := text.find(text[0], 1)) > 0:
        return text[1:end]
    return text.partition(" #")[0].rstrip()
