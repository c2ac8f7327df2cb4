"""The program among others: its terminal, its reader, signals and how it ends."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.cli import app

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_output_that_is_no_terminal_has_no_colours(cli: Callable[..., Ran]) -> None:
    for argv in (("plan", "node24"), ("node2",)):
        ran = cli(*argv)
        assert "\x1b" not in ran.out + ran.err


def test_colours_can_be_forced_and_forbidden(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = colours_of(cli("node2").err)
    assert coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert colours_of(cli("node2").err) == []


def colours_of(text: str) -> list[str]:
    """The escape sequences of a text that set a colour; bold and the like are none."""
    return [
        code
        for codes in re.findall(r"\x1b\[([0-9;]*)m", text)
        for code in codes.split(";")
        if code[:1] in "349"
    ]


def test_errors_are_seen_where_there_are_no_columns(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert_one_message(cli("check", "/no/such/bundle.tar.gz"), 2, "/no/such/bundle.tar.gz")


def test_the_program_exits_with_the_code_and_ends_cleanly_on_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.update({number: handler}))
    with pytest.raises(SystemExit) as ended:
        app.main(["--version"])
    assert ended.value.code == 0
    with pytest.raises(SystemExit) as terminated:
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert terminated.value.code == 143


def test_a_reader_that_goes_away_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    shell = shutil.which("sh")
    assert shell is not None
    command = f'{sys.executable} -c "from capsule_build.cli.app import main; main()" plan node24 --json'
    ran = subprocess.run(
        [shell, "-c", f"{{ {command}; echo $? >&3; }} 3>code | :"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert ran.stderr == b""
    assert (tmp_path / "code").read_text() in {"0\n", "1\n"}


@pytest.mark.usefixtures("world", "cli")
def test_a_closed_standard_output_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert app.run(["plan", "tiny", "--json"]) == 0
    # What stands in for it is open as long as the process, which goes on here.
    sys.stdout.close()
