"""What the way to a task reads by hand, to load less, against what is usually used for that."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capsule_build.sandbox import jsontext
from capsule_build.sandbox.modules import imported
from capsule_build.sandbox.options import read_size, read_timeout
from capsule_build.sandbox.records import Record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_values_are_written_as_json_writes_them(value: Any) -> None:
    text = jsontext.dumps(value)
    assert text == json.dumps(value)
    assert repr(jsontext.loads(text.encode())) == repr(json.loads(text))


@given(st.one_of(st.text(), st.text('[]{}",:0123456789.eE+-truefalsn \t\r\n\\u', max_size=30)))
@example("")
@example("[1] 2")
@example("\ufeff1")
@example('"\n"')
def test_texts_are_read_as_json_reads_them(text: str) -> None:
    def read(by: Any) -> str:
        try:
            return repr(by(text.encode()))
        except ValueError:
            return "no JSON"

    assert read(jsontext.loads) == read(lambda data: json.loads(data.decode()))


MARKS = st.text('",[]{}\\\\:é ', max_size=12)
MARKED = st.recursive(
    st.none() | st.integers() | MARKS,
    lambda inner: st.lists(inner) | st.dictionaries(MARKS, inner),
    max_leaves=30,
)


def values_of(value: Any) -> int:
    """How many values a value holds; an empty list or object counts as if it held one."""
    if not isinstance(value, list | dict):
        return 0
    inner = value if isinstance(value, list) else list(value.values())
    return max(1, len(inner)) + sum(values_of(item) for item in inner)


@given(MARKED, st.booleans(), st.integers(1, 9))
@example(['\\\\"', "\\", ",", [], {"[{": {}}], True, 1)
def test_values_are_counted_as_they_are_and_not_in_texts(value: Any, is_ascii: bool, piece: int) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii).encode()
    number = values_of(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsontext, "_PIECE_BYTES", piece)
        patch.setattr(jsontext, "MAX_VALUES", number)
        assert jsontext.loads_bounded(text) == value
        patch.setattr(jsontext, "MAX_VALUES", number - 1)
        if number:
            with pytest.raises(jsontext.TooMuchError, match=f"more than {number - 1} values"):
                jsontext.loads_bounded(text)


def test_what_json_cannot_hold_is_refused() -> None:
    looped: list[Any] = []
    looped.append(looped)
    for value, error in ((object(), TypeError), ({1, 2}, TypeError), (looped, ValueError)):
        with pytest.raises(error):
            jsontext.dumps(value)


@given(st.text("0123456789kmgbKMGBx. ٣", max_size=8))
@example("64 KB")
@example("1" * 18 + "B")
def test_sizes_are_read_as_the_pattern_says(text: str) -> None:
    match = re.fullmatch(r"(?ai:(\d{1,18})\s*(|B|KB|MB|GB))", text.strip())
    size = int(match[1]) << {"": 0, "B": 0, "KB": 10, "MB": 20, "GB": 30}[match[2].upper()] if match else 0
    try:
        assert read_size(text) == size
    except ValueError:
        assert not 0 < size <= 4 << 30


@given(st.text("0123456789.hms ", max_size=10))
@example("1h30m")
@example("1.5s2ms")
@example(".5s")
def test_times_are_read_as_the_pattern_says(text: str) -> None:
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.replace(" ", ""))
    whole = "".join(number + unit for number, unit in parts) == text.replace(" ", "")
    milliseconds = round(sum(float(n) * {"ms": 1, "s": 1e3, "m": 6e4, "h": 36e5}[u] for n, u in parts))
    try:
        assert read_timeout(text) == milliseconds
        assert whole
    except ValueError:
        assert not parts or not whole or not 0 < milliseconds <= 10 * 365 * 24 * 3_600_000


WORDS = (
    "import",
    "from",
    " ",
    "\t",
    ";",
    ":",
    ",",
    ".",
    "a",
    "pkg.sub",
    "as",
    "#",
    "\n",
    "\\",
    "(",
    "*",
    "é",
)


@given(st.lists(st.sampled_from(WORDS), max_size=14).map("".join))
@example("x: import a;from\tb.c import *, d # e, f")
def test_imports_are_found_as_the_pattern_says(source: str) -> None:
    names: set[str] = set()
    pattern = rb"(?m:(?:^|[;:])[ \t]*(import|from)[ \t]+([\w.,* \t]+))"
    for word, rest in re.findall(pattern, source.encode()):
        for item in rest.split(b",") if word == b"import" else [rest]:
            first = item.split()[:1]
            if first and not first[0].startswith(b"."):
                names.add(first[0].split(b".")[0].decode())
    assert imported(source.encode()) == names - sys.stdlib_module_names - {"capsule", "__future__"}


def test_a_record_is_what_a_named_tuple_is() -> None:
    class Mine(Record):
        first: int
        second: str = "s"
        third: tuple[int, ...] = ()

    class Theirs(NamedTuple):
        first: int
        second: str = "s"
        third: tuple[int, ...] = ()

    good: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1,), {}),
        ((1, "b"), {"third": (1,)}),
        ((), {"first": 2}),
        ((1, "x", (2,)), {}),
    ]
    for values, named in good:
        mine, theirs = Mine(*values, **named), Theirs(*values, **named)
        assert tuple(mine) == tuple(theirs)
        assert mine._asdict() == theirs._asdict()
        assert (mine.first, mine.second, mine.third) == (theirs.first, theirs.second, theirs.third)
        assert repr(mine) == repr(theirs).replace("Theirs", "Mine")
    bad: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1, "b", (), 4), {}),
        ((1,), {"first": 2}),
        ((1,), {"other": 2}),
    ]
    for values, named in bad:
        with pytest.raises(TypeError):
            Mine(*values, **named)
    with pytest.raises(AttributeError):
        Mine(1).first = 2  # type: ignore[misc]
    assert Mine._fields == Theirs._fields
