"""A command line without programs, network and engines, and a world to run it in."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from typing import TYPE_CHECKING, NoReturn

import pytest

from capsule_build.cli import app
from tests import fakes

from .ran import Ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from capsule_build.engine import Engine


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("this should have needed no program, network or engine")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is started, no connection made and no engine opened unless a test brings its own."""
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("capsule_build.engine.select_engine", refuse)
    monkeypatch.setattr("capsule_build.cli.build.host_architecture", lambda: "x86_64")
    monkeypatch.setattr("capsule_build.cli.trial.host_architecture", lambda: "x86_64")
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    for variable in [name for name in os.environ if name.startswith(("CAPSULE_", "FORCE_COLOR", "NO_COLOR"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*argv: object) -> Ran:
        code = app.run([str(word) for word in argv])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    """A recipe folder of somebody's own, a filled cache and an engine that isn't opened yet."""
    made = fakes.World(tmp_path)
    monkeypatch.setenv("CAPSULE_RECIPES", str(made.recipes))
    monkeypatch.setenv("CAPSULE_CACHE_DIR", str(made.cache.root))
    monkeypatch.setattr("capsule_build.cli.build.default_dist", lambda: made.dist)
    # Which commit this is has to be asked of git.
    monkeypatch.setattr("capsule_build.record.source_of", lambda _checkout: None)
    return made


@pytest.fixture
def engine(world: fakes.World, monkeypatch: pytest.MonkeyPatch) -> fakes.FakeEngine:
    """The world's engine, which is opened when a command asks for one."""

    @contextlib.contextmanager
    def select(choice: str | None, *, say: Callable[[str], None]) -> Iterator[Engine]:
        world.engine.calls.append(f"open {choice}")
        try:
            yield world.engine
        finally:
            world.engine.close()

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    return world.engine
