"""JSON that two readers can't understand differently (RFC 8259, read strictly)."""

from __future__ import annotations

import json
from typing import NoReturn


class JsonError(ValueError):
    """The bytes aren't JSON, or leave room for two readings. The message says where or why."""


def loads(data: bytes) -> object:
    """Read one JSON value.

    Refused beyond what is no JSON at all: a key that stands twice in one object, NaN and infinities, a byte
    order mark, text that is no Unicode (lone surrogates), nesting and numbers without measure.

    Raises:
        JsonError: For each of these.
    """
    try:
        text = data.decode("utf-8")
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        _check_text(value)
    except JsonError:
        raise
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise JsonError(f"it is not UTF-8 text ({error.reason})") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"it is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except ValueError as error:
        raise JsonError("it holds a number of too many digits") from error
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    return value


def loads_object(data: bytes) -> dict[str, object]:
    """Read one JSON object, as `loads` does.

    Raises:
        JsonError: It isn't one.
    """
    value = loads(data)
    if not isinstance(value, dict):
        raise JsonError("it is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for key, value in pairs:
        if key in result:
            raise JsonError(f"the key {key!a} stands twice in one object")
        result[key] = value
    return result


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not a JSON number")


def _check_text(value: object) -> None:
    """Raise UnicodeEncodeError when a string in `value` has no UTF-8 form."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            item.encode("utf-8")
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
