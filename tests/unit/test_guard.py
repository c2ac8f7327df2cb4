"""Errors become one message and an exit code, the same way for both commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import typer
from typer import BadParameter

from capsule_build import __version__
from capsule_build.cli import app as build_app
from capsule_build.cli.capsule import app as capsule_app
from capsule_build.cli.guard import guarded
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import EngineError, TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

    Caught = pytest.CaptureFixture[str]

MADE = (build_app.make_app(recipes_dir()), capsule_app.make_app())
IDS = ("capsule-build", "capsule")


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def call() -> NoReturn:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (TargetError("no [room]", hint="make some"), 7, "error: no [room]\nmake some\n"),
        (EngineError("it is down"), 4, "error: it is down\n"),
        (
            BadParameter("no such option"),
            2,
            "error: Invalid value: no such option\n'prog --help' lists what there is.\n",
        ),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (typer.Abort(), 130, "Interrupted.\n"),
        (OSError(28, "No space left on device", "/a/file"), 1, "error: /a/file: No space left on device.\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_is_one_message_and_a_code(
    error: BaseException, code: int, said: str, capsys: Caught
) -> None:
    assert guarded("prog", raising(error)) == code
    assert capsys.readouterr() == ("", said)


def test_a_defect_names_the_program_and_shows_where_when_that_is_asked_for(
    capsys: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAPSULE_DEBUG", raising=False)
    assert guarded("prog", raising(ZeroDivisionError("by zero"))) == 1
    assert "error: prog itself failed: ZeroDivisionError: by zero\n" in capsys.readouterr().err
    monkeypatch.setenv("CAPSULE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        guarded("prog", raising(ZeroDivisionError("by zero")))


@pytest.mark.parametrize(("result", "code"), [(None, 0), (0, 0), (3, 3), ("text", 0)])
def test_what_a_command_exits_with_is_kept(result: object, code: int) -> None:
    assert guarded("prog", lambda: result) == code


@pytest.mark.parametrize("module", [build_app, capsule_app], ids=lambda module: module.__name__)
class TestBothCommands:
    def test_a_ctrl_c_that_typer_turned_into_a_code_is_said(
        self,
        module: ModuleType,
        monkeypatch: pytest.MonkeyPatch,
        capsys: Caught,
    ) -> None:
        made = typer.Typer()
        made.command()(raising(KeyboardInterrupt()))
        monkeypatch.setattr(module, "make_app", lambda *_: made)
        assert module.run([]) == 130
        assert capsys.readouterr().err == "Interrupted.\n"

    @pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
    def test_a_closed_stream_is_no_defect(
        self,
        module: ModuleType,
        monkeypatch: pytest.MonkeyPatch,
        stream: str,
    ) -> None:
        monkeypatch.setattr(sys, stream, None)
        assert module.run(["--version"]) == 0
        assert module.run(["nonsense"]) == 2
        getattr(sys, stream).close()


def test_the_number_of_a_closed_stream_is_no_files() -> None:
    program = (
        "import os, sys\n"
        "from capsule_build.cli.guard import guarded\n"
        "def call():\n"
        "    assert not sys.stdin.isatty() and sys.stdin.read() == ''\n"
        "    print('lost', file=sys.stderr)\n"
        "    with open(sys.argv[1], 'w') as stream:\n"
        "        return 0 if stream.fileno() > 2 else 50 + stream.fileno()\n"
        "os._exit(guarded('prog', call))\n"
    )
    line = [sys.executable, "-c", program, os.devnull]
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        ran = subprocess.run(["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *line], check=False, timeout=60)
        assert ran.returncode == 0, closed


@pytest.mark.parametrize(
    ("module", "argv", "said"),
    [
        (
            build_app,
            ["verify", "--nonsense"],
            "No such option: --nonsense\n'capsule-build verify --help' lists what there is.",
        ),
        (
            build_app,
            ["pins", "list", "--nonsense"],
            "No such option: --nonsense\n'capsule-build pins list --help' lists what there is.",
        ),
        (
            build_app,
            ["lock", "--revoke", "node24-v1"],
            "Option '--revoke' requires 2 arguments.\n'capsule-build lock --help' lists what there is.",
        ),
        (
            capsule_app,
            ["run", "hello.py", "--json=1"],
            "Option '--json' does not take a value.\n'capsule run --help' lists what there is.",
        ),
        (
            capsule_app,
            ["--json", "run", "x"],
            (
                "No such option: --json\n"
                "Options of a command stand behind its name. 'capsule --help' lists what there is."
            ),
        ),
        (
            capsule_app,
            ["--versio"],
            "No such option: --versio (Possible options: --version)\n'capsule --help' lists what there is.",
        ),
        (build_app, ["nonsense"], "No such command 'nonsense'.\n'capsule-build --help' lists what there is."),
        (
            capsule_app,
            ["use", "TAG", "local", "node", "--version"],
            (
                "No such option: --version\n"
                "Put '--' before the command. 'capsule use --help' lists what there is."
            ),
        ),
        (
            capsule_app,
            ["run", "--mount", "a b", "hello.py", "x", "--name", "Ada"],
            (
                "No such option: --name (Possible options: --trace)\n"
                "The task's own words go behind '--': capsule run --mount 'a b' hello.py x -- --name Ada\n"
                "'capsule run --help' lists what there is."
            ),
        ),
        (
            capsule_app,
            ["exec", "--mount", "--name", "hello.wasm", "--name=Ada"],
            (
                "No such option: --name (Possible options: --trace)\n"
                "The task's own words go behind '--': capsule exec --mount --name hello.wasm -- --name=Ada\n"
                "'capsule exec --help' lists what there is."
            ),
        ),
        (
            capsule_app,
            ["run", "hello.py", "-nAda"],
            (
                "No such option: -n\n"
                "The task's own words go behind '--': capsule run hello.py -- -nAda\n"
                "'capsule run --help' lists what there is."
            ),
        ),
        (
            capsule_app,
            ["run", "--mount", "data", "--nonsense", "hello.py"],
            "No such option: --nonsense\n'capsule run --help' lists what there is.",
        ),
        (
            capsule_app,
            ["run", "hello.py", "--args-file"],
            "Option '--args-file' requires an argument.\n'capsule run --help' lists what there is.",
        ),
        (
            capsule_app,
            ["install", "TAG", "local", "--nonsense"],
            "No such option: --nonsense\n'capsule install --help' lists what there is.",
        ),
    ],
)
def test_a_usage_error_names_the_commands_own_help(
    module: ModuleType, argv: list[str], said: str, capsys: Caught
) -> None:
    assert module.run(argv) == 2
    assert capsys.readouterr() == ("", f"error: {said}\n")


def commands_of(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands_of(inner, (*words, name))


@pytest.mark.slow
@pytest.mark.parametrize(("module", "made"), list(zip([build_app, capsule_app], MADE, strict=True)), ids=IDS)
def test_every_help_reads_as_its_command_is_typed(
    module: ModuleType, made: typer.Typer, capsys: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    usages = []
    for words in commands_of(typer.main.get_command(made)):
        assert module.run([*words, "--help"]) == 0
        said = capsys.readouterr().out
        assert module.run([*words, "-h"]) == 0
        assert capsys.readouterr().out == said
        assert "<bool>" not in said
        usages.append(
            next(line for line in said.splitlines() if "Usage:" in line).split("Usage: ")[1].strip()
        )
        assert not re.search(r"[{}]|\[\[|\]\]", usages[-1].replace("[RECIPE[:LIBC]]", "")), usages[-1]
    expected = {
        build_app: "capsule-build verify [OPTIONS] [BUNDLE]...",
        capsule_app: "capsule use [OPTIONS] TAG ENV -- CMD [ARG]...",
    }
    assert expected[module] in usages
    assert len(usages) > 10


@pytest.mark.parametrize("made", MADE, ids=IDS)
def test_an_option_that_can_be_repeated_says_so(made: typer.Typer) -> None:
    waiting, repeated = [typer.main.get_command(made)], 0
    while waiting:
        command: Any = waiting.pop()
        waiting.extend(getattr(command, "commands", {}).values())
        for param in command.params:
            if param.param_type_name == "option" and param.multiple:
                assert "Can be repeated." in param.help, (command.name, param.opts)
                repeated += 1
    assert repeated > 2


def test_a_helps_lines_are_as_long_as_the_terminal(capsys: Caught, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert capsule_app.run(["use", "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "exit status are the command's." in lines


@pytest.mark.parametrize("option", ["--version", "-V"])
@pytest.mark.parametrize("module", [build_app, capsule_app], ids=["capsule-build", "capsule"])
def test_both_say_their_version(module: ModuleType, option: str, capsys: Caught) -> None:
    assert module.run([option]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("hangup", "sent", "code"),
    [
        ("SIG_DFL", ["TERM"], 143),
        ("SIG_DFL", ["HUP"], 129),
        ("SIG_DFL", ["HUP", "TERM", "HUP"], 129),
        ("SIG_IGN", ["HUP", "TERM"], 143),
    ],
)
def test_signals_end_it_after_it_has_cleaned_up(
    tmp_path: Path, hangup: str, sent: list[str], code: int
) -> None:
    program = (
        "import os, signal, sys, time\n"
        "from capsule_build.cli.guard import end_on_signals, guarded\n"
        "signal.signal(signal.SIGHUP, getattr(signal, sys.argv[2]))\n"
        "end_on_signals()\n"
        "def call():\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('cleaning', flush=True)\n"
        "        sys.stdin.read()\n"
        "        open(sys.argv[1], 'w').close()\n"
        "sys.exit(guarded('prog', call))\n"
    )
    line = [sys.executable, "-c", program, str(tmp_path / "cleaned"), hangup]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ran:
        assert ran.stdout is not None
        assert ran.stdin is not None
        assert ran.stdout.readline() == b"ready\n"
        for name in sent:
            ran.send_signal(getattr(signal, f"SIG{name}"))
            time.sleep(0.2)
        assert ran.stdout.readline() == b"cleaning\n"
        ran.stdin.close()
        assert ran.wait(30) == code
    assert (tmp_path / "cleaned").exists()
