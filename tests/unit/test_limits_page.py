"""docs/limits.md says what the code does: its figures are the constants', its tests are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parents[2]
SANDBOX = TOP / "capsule_build" / "sandbox"
PAGE = (TOP / "docs" / "limits.md").read_text()
UNITS = {
    "": 1,
    "units": 1,
    "KB": 1 << 10,
    "MB": 1 << 20,
    "GB": 1 << 30,
    "ms": 0.001,
    "s": 1,
    "years": 365 * 24 * 3600,
}
PLACE = re.compile(r'`([a-z_.]+)\.(_?[A-Z_]+)(?:\["(\w+)"\])?`')


class Row(NamedTuple):
    """A limit, as the page has it."""

    figure: str
    place: str
    test: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and PLACE.fullmatch(cells[2]):
            found.append(Row(cells[1], cells[2], cells[4]))
    return found


def constant(place: str) -> float:
    """Return what a constant is: in seconds, bytes, or as a number."""
    matched = PLACE.fullmatch(place)
    assert matched is not None
    module, name, key = matched.groups()
    value = getattr(importlib.import_module(f"capsule_build.sandbox.{module}"), name)
    number = float(value[key] if key else value)
    return number / 1000 if name.endswith("_MS") else number


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.place.strip("`"))
def test_a_figure_is_the_constants(row: Row) -> None:
    matched = re.fullmatch(r"([\d,]+)(?: (\w+))?", row.figure)
    assert matched is not None, row
    assert int(matched[1].replace(",", "")) * UNITS[matched[2] or ""] == pytest.approx(constant(row.place))


def test_every_bound_of_the_sandbox_is_on_the_page() -> None:
    there = set()
    for path in SANDBOX.rglob("*.py"):
        module = ".".join(path.relative_to(SANDBOX).with_suffix("").parts)
        there |= {
            f"{module}.{name}"
            for name in re.findall(r"^((?:MAX|GRACE)_[A-Z_]+):", path.read_text(), re.MULTILINE)
        }
    assert there
    assert there - {row.place.strip("`") for row in rows()} == set()


def test_every_test_that_is_named_is_there() -> None:
    sources = "".join(
        path.read_text() for folder in ("sandbox", "unit") for path in (TOP / "tests" / folder).glob("*.py")
    )
    named = {row.test.strip("`") for row in rows()} - {""}
    assert named
    assert {name for name in named if f"def {name}(" not in sources} == set()
