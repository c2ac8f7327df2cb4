"""Tables and facts are whole where programs read them, and fit where people do."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

import pytest

from capsule_build.cli.output import print_facts, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS = ("component", "version", "licence")
LONG = "GPL-3.0-or-later WITH GCC-exception-3.1 AND " * 8 + "MIT"
ROWS: Sequence[Sequence[str]] = (
    ("node", "24.19.0", "MIT"),
    ("[brackets]", "", ""),
    ("名前", "1:2.0-1", LONG),
    ("two\nlines", "1", "ISC"),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", ["0", "20", "80"])
def test_without_a_terminal_a_row_is_one_whole_line(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    print_table(COLUMNS, ROWS)
    assert capsys.readouterr().out == (
        "component   version  licence\n"
        "node        24.19.0  MIT\n"
        "[brackets]\n"
        f"名前        1:2.0-1  {LONG}\n"
        "two lines   1        ISC\n"
    )


def test_a_table_without_rows_is_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ())
    assert capsys.readouterr().out == "component  version  licence\n"


def test_on_a_terminal_a_table_is_as_wide_as_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    print_table(COLUMNS, ROWS)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("GCC-exception-3.1") == 8


@pytest.mark.parametrize("columns", ["20", "80"])
def test_facts_are_never_cut_or_folded(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_facts((("signed by", LONG), ("texts", "a/LICENSE\n[b]/LICENSE"), ("none", "")), indent="  ")
    assert capsys.readouterr().out == (
        f"  signed by  {LONG}\n  texts      a/LICENSE\n             [b]/LICENSE\n  none\n"
    )
