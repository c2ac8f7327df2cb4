"""JSON by the part of CPython's own `json` that is written in C.

The package imports `re` for its decoder, and with it takes as long as the interpreter's own start. What is
read and written is the same (`tests/unit/test_sandbox_parsing.py` compares them).
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

MAX_VALUES: Final = 2_000_000
"""Of what a guest says, with all that it holds. Two characters may become a hundred bytes of this process."""

_MARKS: Final = (b",", b"[", b"{")
"""Each value has one before it, but for the first; an empty list or object has one more."""

_PIECE_BYTES: Final = 256 << 10


class TooMuchError(ValueError):
    """What a text stands for is too much for this process."""


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
        raise TooMuchError("lists and objects so deep in each other can't be passed on") from None
    if end != len(decoded):
        raise ValueError(f"something follows the value, at character {end}")
    return value


def loads_bounded(text: bytes) -> Any:
    """Return the value of a text that nobody vouches for.

    Raises:
        TooMuchError: It has more than `MAX_VALUES` values, or they are too deep in each other.
        ValueError: It is no JSON.
    """
    # Most have fewer characters than that.
    if len(text) > MAX_VALUES and _values(text) > MAX_VALUES:
        raise TooMuchError(f"more than {MAX_VALUES} values can't be passed on")
    return loads(text)


def _values(text: bytes) -> int:
    """Return about how many values there are: the exact number doesn't matter, once they are too many."""
    most = sum(text.count(mark) for mark in _MARKS)
    if most <= MAX_VALUES:
        return most
    # It may be a text with many commas. So without the texts; in pieces, since there may be many of those.
    found, inside, rest = 0, 0, b""
    for start in range(0, len(text), _PIECE_BYTES):
        piece = (rest + text[start : start + _PIECE_BYTES]).replace(rb"\\", b"")
        rest = piece[-1:] if piece.endswith(b"\\") else b""
        parts = piece.removesuffix(b"\\").replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[inside::2])
        found += sum(outside.count(mark) for mark in _MARKS)
        inside ^= (len(parts) - 1) & 1
        if found > MAX_VALUES:
            break
    return found


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"JSON has no {type(value).__name__}")
