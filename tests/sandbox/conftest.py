"""What the tests of the sandbox share: a compiled guest, and a way to run files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capsule_build.sandbox.store import CACHE_VARIABLE

from .tasks import Bench, Web


@pytest.fixture(scope="session", autouse=True)
def _kept_guest() -> None:
    """Compiled once, and kept with the tests' other state where there is such a place."""
    state = os.environ.get("CAPSULE_TEST_STATE")
    if state:
        os.environ[CACHE_VARIABLE] = str(Path(state, "sandbox-cache"))


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
