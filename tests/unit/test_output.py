"""Tables and facts are whole where programs read them, and fit where people do."""

from __future__ import annotations

import io
import re
import sys
from typing import TYPE_CHECKING

import pytest

from capsule_build.cli.build import print_bundles
from capsule_build.cli.output import err, harmless, print_entries, print_error, print_facts, print_table
from capsule_build.runtime.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    lines = on_terminal(monkeypatch, 80, lambda: print_table(COLUMNS, ROWS)).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("GCC-exception-3.1") == 8


@pytest.mark.parametrize(("columns", "kept"), [(20, "name"), (30, "name version"), (40, "name version size")])
def test_a_narrow_terminal_goes_without_what_is_least_needed(
    monkeypatch: pytest.MonkeyPatch, columns: int, kept: str
) -> None:
    printed = on_terminal(
        monkeypatch,
        columns,
        lambda: print_table(
            ("name", "version", "size"),
            [("busybox-static", "1:1.37.0-6", "955.3 kB")],
            dispensable=("size", "version"),
        ),
    )
    cells = {"name": "busybox-static", "version": "1:1.37.0-6", "size": "955.3 kB"}
    head, row = printed.splitlines()
    assert head.split() == kept.split()
    assert re.split(r" {2,}", row.rstrip()) == [cells[name] for name in kept.split()]


def test_an_entry_is_one_line_and_what_is_said_of_it_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(("1", "", "2026-11-30 05:00:00"), ""), (("2", "", "2026-11-30 05:00:01"), "no way " * 12)]
    printed = on_terminal(
        monkeypatch, 60, lambda: print_entries(("id", "parent", "started"), entries, dispensable=("id",))
    )
    head, first, second, *said = [line.rstrip() for line in printed.splitlines()]
    assert (head, first, second) == ("id  started", "1   2026-11-30 05:00:00", "2   2026-11-30 05:00:01")
    assert all(line.startswith("    no way") and len(line) <= 60 for line in said)
    assert " ".join(said).split() == ["no", "way"] * 12


def test_an_entry_that_no_terminal_has_room_for_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [(("a" * 30, "2026-11-30 05:00:00"), "")]
    printed = on_terminal(monkeypatch, 20, lambda: print_entries(("task", "started"), entries))
    assert printed.splitlines()[1] == f"{'a' * 30}  2026-11-30 05:00:00"


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, show: Callable[[], None]) -> str:
    """What is shown on a terminal of a width, without its colours."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    show()
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())


def test_a_built_bundles_path_and_digest_can_be_copied_from_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [(f"/home/somebody/{'folder/' * 9}{name}.tar.gz", "57.2 MB", "05ab" * 16) for name in ("a", "b")]
    printed = on_terminal(monkeypatch, 80, lambda: print_bundles(rows))
    assert printed.splitlines() == [
        f"{name:<6}  {cell}"
        for row in rows
        for name, cell in zip(("bundle", "size", "sha256"), row, strict=True)
    ]


@pytest.mark.parametrize("columns", ["20", "80"])
def test_facts_are_never_cut_or_folded(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_facts((("signed by", LONG), ("texts", "a/LICENSE\n[b]/LICENSE"), ("none", "")), indent="  ")
    assert capsys.readouterr().out == (
        f"  signed by  {LONG}\n  texts      a/LICENSE\n             [b]/LICENSE\n  none\n"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;4Hmoved", "red and moved"),
        ("a\x1b]0;title\x07b\x1b]52;c;aGk=\x1b\\c", "abc"),
        ("unended \x1b]0;title", "unended "),
        ("over\rwritten\x08\x07\x00\x7f\x9b", "overwritten"),
        ("user\u202egpj.exe", "usergpj.exe"),
        ("plain [brackets]\n\ttab, \u540d\u524d, \udcff", "plain [brackets]\n\ttab, \u540d\u524d, \udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_left_out(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_what_a_strangers_program_said_reaches_no_terminal_as_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evil = "\x1b]0;mine\x07\x1b[2Jgone"
    terminals = {stream: Terminal() for stream in ("stdout", "stderr")}
    for stream, terminal in terminals.items():
        monkeypatch.setattr(sys, stream, terminal)
    monkeypatch.setenv("TERM", "xterm")
    print_error(CapsuleError(f"it said: {evil}", hint=evil))
    err().print(evil, markup=False)
    print_table(("name",), [(evil,)])
    print_facts([(evil, evil)])
    printed = "".join(terminal.getvalue() for terminal in terminals.values())
    assert printed.count("gone") == 6
    assert not re.search("mine|\x1b\\]|\x1b\\[2J", printed)
