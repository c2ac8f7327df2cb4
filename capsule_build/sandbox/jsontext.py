"""JSON by the part of CPython's own `json` that is written in C.

The package imports `re` for its decoder, and with it takes as long as the interpreter's own start. What is
read and written is the same (`tests/unit/test_sandbox_parsing.py` compares them).
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, NoReturn


class _Reading:
    """How texts are read: as `json.JSONDecoder` does it."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__
    memo: dict[str, str] = {}  # noqa: RUF012 (the scanner's own)


_scan = make_scanner(_Reading)  # type: ignore[arg-type]  # it reads attributes, of whatever has them


def dumps(value: Any) -> str:
    """Return a value as ASCII text, as `json.dumps` does.

    Raises:
        TypeError: JSON has no such value.
        ValueError: It holds itself.
    """
    encode = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encode(value, 0))


def loads(text: bytes) -> Any:
    """Return the value that a text of UTF-8 stands for, as `json.loads` does.

    Raises:
        ValueError: It is no JSON.
    """
    decoded = text.decode().strip(" \t\n\r")
    try:
        value, end = _scan(decoded, 0)
    except StopIteration as stop:
        raise ValueError(f"no value at character {stop.value}") from None
    except SystemError:
        # The scanner says what is wrong by a class of the package's decoder, where that was imported.
        from json import loads as explain

        return explain(decoded)
    except RecursionError:
        raise ValueError("its values are too deep in each other") from None
    if end != len(decoded):
        raise ValueError(f"something follows the value, at character {end}")
    return value


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"JSON has no {type(value).__name__}")
