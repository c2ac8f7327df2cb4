"""The options of a task: what they may be, and what they mean. Pure: no file, no clock.

What a task may be granted is decided here and in `grants`, from the words of its file and of `capsule.toml`,
by the host. The guest has no say in it.
"""

from __future__ import annotations

from ..runtime.errors import UsageError
from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

COMPUTE: Final = {"LOW": 100_000_000, "MEDIUM": 2_000_000_000, "HIGH": 50_000_000_000}
"""Fuel by the name of its level. One unit is about one WebAssembly instruction."""

MAX_FUEL: Final = 2**63 - 1
MAX_MEMORY: Final = 4 << 30
"""Bytes. A 32-bit WebAssembly memory ends there, which is the bound of a task without `ram`."""
MAX_TIMEOUT_MS: Final = 10 * 365 * 24 * 3_600_000
MAX_RETRIES: Final = 100

_MAX_DIGITS: Final = 18
_SIZE_UNITS: Final = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
_TIME_UNITS: Final = {"ms": 1.0, "s": 1000.0, "m": 60_000.0, "h": 3_600_000.0}
_MODES: Final = {"ro": False, "read-only": False, "rw": True, "read-write": True}
# `re` is imported where a task names a host: it takes as long as the interpreter's own start.
_HOST: Final = r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"
_ADDRESS: Final = r"\[?[0-9a-f:.]+\]?"


class ConfigError(UsageError):
    """A task, its options or `capsule.toml` ask for something that doesn't exist or can't be."""


class Folder(Record):
    """A folder that a task may use.

    Attributes:
        path: As the file has it, relative to the working folder.
        writable: Whether it may change what is there.
    """

    path: str
    writable: bool


class Policy(Record):
    """Everything that one task is granted, and its limits.

    Attributes:
        name: The task's name.
        function: The function's name in the file.
        plain: Whether that is an undecorated `main()`.
        fuel: Units that one try may use.
        memory: Bytes of linear memory; `None`: as many as there can be (`MAX_MEMORY`).
        timeout_ms: Milliseconds that one try may take; `None`: any time.
        max_retries: How many more tries a failure gets.
        folders: What it may read or change.
        hosts: Where it may send requests to, in lower case.
        variables: Names of environment variables that it gets.
    """

    name: str
    function: str
    plain: bool = False
    fuel: int = COMPUTE["MEDIUM"]
    memory: int | None = None
    timeout_ms: int | None = None
    max_retries: int = 0
    folders: tuple[Folder, ...] = ()
    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


def make_policy(
    options: Mapping[str, Any], *, name: Any, function: str, where: str, plain: bool = False
) -> Policy:
    """Return what the options of a task mean.

    Args:
        options: The options, by the names that `@task` has for them.
        name: The task's name, as the file has it.
        function: The name of its function.
        where: The place that an error names.
        plain: Whether the function is a `main()` without the decorator.

    Raises:
        ConfigError: An option is unknown, or isn't one of its formats.
    """
    if not isinstance(name, str) or not name or len(name) > 200 or not name.isprintable():
        raise ConfigError(f"{where}: the name of a task must be a printable text, not {name!r}.")
    values: dict[str, Any] = {}
    for option, value in options.items():
        if option not in _READERS:
            raise ConfigError(f"{where}: there is no option '{option}'. Options: {', '.join(_READERS)}.")
        field, read = _READERS[option]
        try:
            values[field] = read(value)
        except ValueError as error:
            raise ConfigError(f"{where}: {option}={value!r}: {error}") from None
    return Policy(name, function, plain, **values)


def read_compute(value: Any) -> int:
    """Return fuel for a level's name, or an exact number as an integer or as digits.

    Raises:
        ValueError: It is neither.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        fuel = value
    elif isinstance(value, str) and value.upper() in COMPUTE:
        return COMPUTE[value.upper()]
    elif isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        fuel = int(value)
    elif isinstance(value, str) and value.upper() == "CUSTOM":
        raise ValueError("CUSTOM stands for a number: give the fuel itself, as in compute='1000000'.")
    else:
        raise ValueError("it must be LOW, MEDIUM, HIGH or a number of units.")
    if not 0 < fuel <= MAX_FUEL:
        raise ValueError(f"it must be between 1 and {MAX_FUEL}.")
    return fuel


def read_size(value: Any) -> int:
    """Return bytes for `512MB`, `64 KB`, `2GB` or a number of bytes; a unit is 1024 of the one below.

    Raises:
        ValueError: It is none of these, or more than a task can have.
    """
    number = isinstance(value, int) and not isinstance(value, bool)
    size = value if number else _written_size(value)
    if size is None:
        raise ValueError("it must be a size, as in '512MB', '2GB', '64 KB' or bytes.")
    if size <= 0:
        raise ValueError("it must be more than nothing.")
    if size > MAX_MEMORY:
        raise ValueError("a task can't have more than 4GB, the memory of 32-bit WebAssembly.")
    return size


def _written_size(text: Any) -> int | None:
    if not isinstance(text, str):
        return None
    number = text.strip().rstrip("BKMGbkmg")
    unit = text.strip()[len(number) :].upper()
    number = number.rstrip()
    if unit not in _SIZE_UNITS or not (number.isascii() and number.isdigit()) or len(number) > _MAX_DIGITS:
        return None
    return int(number) * _SIZE_UNITS[unit]


def read_timeout(value: Any) -> int:
    """Return milliseconds for `500ms`, `30s`, `5m`, `1h` or a combination such as `1m30s`.

    Raises:
        ValueError: It is none of these.
    """
    text = value.replace(" ", "").lower() if isinstance(value, str) else ""
    exact: float | None = 0.0 if text else None
    while text and exact is not None:
        behind = text.lstrip("0123456789.")
        left = behind.lstrip("hms")
        part = _written_time(text[: len(text) - len(behind)], behind[: len(behind) - len(left)])
        exact, text = None if part is None else exact + part, left
    if exact is None:
        raise ValueError("it must be a time, as in '500ms', '30s', '5m', '1h' or '1m30s'.")
    milliseconds = round(exact)
    if not 0 < milliseconds <= MAX_TIMEOUT_MS:
        raise ValueError("it must be between 1ms and ten years.")
    return milliseconds


def _written_time(number: str, unit: str) -> float | None:
    whole, point, part = number.partition(".")
    if unit not in _TIME_UNITS or not whole.isdigit() or len(number) > _MAX_DIGITS:
        return None
    if point and not part.isdigit():
        return None
    return float(number) * _TIME_UNITS[unit]


def read_retries(value: Any) -> int:
    """Return how many more tries a failure gets.

    Raises:
        ValueError: It is no number, or out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_RETRIES:
        raise ValueError(f"it must be a whole number from 0 to {MAX_RETRIES}.")
    return value


def read_folders(value: Any) -> tuple[Folder, ...]:
    """Return the folders of `allowed_files`.

    Raises:
        ValueError: An entry has another form, is absolute, or climbs.
    """
    return tuple(_folder(entry) for entry in _list(value))


def _folder(entry: Any) -> Folder:
    writable = True
    if isinstance(entry, dict):
        if set(entry) - {"path", "mode"} or "path" not in entry:
            raise ValueError("an entry has a 'path' and perhaps a 'mode', and nothing else.")
        mode = entry.get("mode", "rw")
        if mode not in _MODES:
            raise ValueError(f"the mode {mode!r} is none of {', '.join(_MODES)}.")
        path, writable = entry["path"], _MODES[mode]
    elif isinstance(entry, str):
        path, writable = split_mode(entry)
    else:
        raise ValueError("it lists folders, as in ['./data', './input:ro'].")
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("a folder is a text that isn't empty.")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path!a} is no Unicode text.") from None
    if path.startswith(("/", "~")):
        raise ValueError(f"'{path}' is not relative to the working folder.")
    if ".." in path.split("/"):
        raise ValueError(f"'{path}' leaves the working folder.")
    return Folder(path, writable)


def split_mode(text: str) -> tuple[str, bool]:
    """Return the path of a text such as `./data:ro`, and whether what is there may be changed.

    What stands behind the last colon is always the mode: a mistyped one must not grant more than was meant.

    Raises:
        ValueError: It is no mode.
    """
    path, colon, mode = text.rpartition(":")
    if not colon:
        return text, True
    if mode not in _MODES:
        raise ValueError(f"'{text}': behind the colon stands ro or rw (or read-only, read-write).")
    return path, _MODES[mode]


def read_hosts(value: Any) -> tuple[str, ...]:
    """Return the hosts of `allowed_hosts`, in lower case.

    Raises:
        ValueError: An entry is no host, or has a scheme, a path or a port.
    """
    import re

    hosts = []
    for entry in _list(value):
        if not isinstance(entry, str):
            raise ValueError("it lists names of hosts.")
        host = entry.strip().lower().rstrip(".")
        if (
            host != "*"
            and not re.fullmatch(_HOST, host)
            and not (":" in host and re.fullmatch(_ADDRESS, host))
        ):
            raise ValueError(
                f"'{entry}' is no host: it must be a name, as in 'api.example.com', '*.example.com' or '*', "
                "without scheme, port or path."
            )
        hosts.append(host.strip("[]"))
    return tuple(hosts)


def read_variables(value: Any) -> tuple[str, ...]:
    """Return the names of `env_variables`.

    Raises:
        ValueError: An entry is no name of a variable.
    """
    names = _list(value)
    for name in names:
        if not isinstance(name, str) or not (name.isascii() and name.isidentifier()):
            raise ValueError(f"{name!r} is no name of an environment variable.")
    return tuple(names)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError("it must be a list.")
    return list(value)


_READERS: Final = {
    "compute": ("fuel", read_compute),
    "ram": ("memory", read_size),
    "timeout": ("timeout_ms", read_timeout),
    "max_retries": ("max_retries", read_retries),
    "allowed_files": ("folders", read_folders),
    "allowed_hosts": ("hosts", read_hosts),
    "env_variables": ("variables", read_variables),
}
"""Every option: the field that it sets, and what reads it."""

OPTIONS: Final = tuple(_READERS)
"""The names of the options that are limits or grants."""
