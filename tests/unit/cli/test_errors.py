"""How failures reach a user: message, hint and exit code; never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from capsule_build.engine.protocol import EngineDownError, EngineMissingError
from capsule_build.fetch import VanishedError, WrongFileError
from capsule_build.runtime.errors import CapsuleError, EngineError, TargetError, UsageError

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests import fakes


ERRORS: list[tuple[CapsuleError, int]] = [
    (CapsuleError("what failed", hint="do this"), 1),
    (UsageError("what failed", hint="do this"), 2),
    (VanishedError("what failed", hint="do this"), 3),
    (WrongFileError("what failed", hint="do this"), 3),
    (EngineError("what failed", hint="do this"), 4),
    (EngineMissingError("what failed", hint="do this"), 4),
    (EngineDownError("what failed", hint="do this"), 4),
    (TargetError("what failed", hint="do this"), 7),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_is_printed_with_its_hint_and_its_code(
    world: fakes.World,
    cli: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    error: CapsuleError,
    code: int,
) -> None:
    def select(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    assert cli("tiny") == Ran(code, "", "error: what failed\ndo this\n")
    assert world.left_over() == []


def test_notes_of_an_error_are_printed(
    world: fakes.World, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = CapsuleError("what failed")
    error.add_note("The whole log is [there].")

    def select(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    assert cli("tiny").err == "error: what failed\nThe whole log is [there].\n"


def test_messages_are_never_taken_for_markup(cli: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "[bold]x[/nonsense].tar.gz"
    assert str(path) in cli("check", path).err.replace("\n", "")


def test_an_interrupt_is_130_and_says_so(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran]
) -> None:
    engine.failures["start"] = KeyboardInterrupt()
    ran = cli("tiny")
    assert ran.code == 130
    assert ran.err.endswith("Interrupted.\n")
    assert "Traceback" not in ran.err
    assert engine.closed
    assert world.left_over() == []


def test_a_full_disk_is_1_and_said(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device", "/a/file")

    monkeypatch.setattr("capsule_build.build.render", full)
    ran = cli("tiny")
    assert_one_message(ran, 1, "error: /a/file: No space left on device.")
    assert world.left_over() == []


def test_a_defect_of_the_program_is_said_without_a_traceback(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("by [zero]")

    monkeypatch.setattr("capsule_build.cli.build.make_plan", broken)
    ran = cli("plan", "node24")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: capsule-build itself failed: ZeroDivisionError: by [zero]\n")
    assert "CAPSULE_DEBUG=1" in ran.err
    assert "Traceback" not in ran.err
    monkeypatch.setenv("CAPSULE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli("plan", "node24")
