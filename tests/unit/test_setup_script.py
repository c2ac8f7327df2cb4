"""`tools/setup.sh` says what it does, and does it once. Nothing is installed: Python is a stand-in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from capsule_build.runtime.process import run

SCRIPT = Path(__file__).parents[2] / "tools" / "setup.sh"
WHOLE = "Setting up .venv: one to two minutes, most of them for downloads\n"
ADDED = "Adding linters and test tools to .venv\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("bin/python3", "bin/gpgv", ".venv/bin/python"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$0 $*" >>{tmp_path}/ran\n')
        path.chmod(0o755)
    (tmp_path / "tools").mkdir()
    shutil.copy(SCRIPT, tmp_path / "tools")
    (tmp_path / "pyproject.toml").touch()
    os.utime(tmp_path / "pyproject.toml", (1, 1))
    return tmp_path


def set_up(checkout: Path, *options: str) -> str:
    environment = {**os.environ, "PATH": f"{checkout}/bin:{os.environ['PATH']}"}
    return run(["sh", str(checkout / "tools" / "setup.sh"), *options], env=environment).text


def test_what_is_added_to_an_environment_that_is_there_is_said(checkout: Path) -> None:
    assert set_up(checkout) == WHOLE
    assert set_up(checkout) == ""
    assert "--editable .[guest]" in (checkout / "ran").read_text()
    assert set_up(checkout, "--dev") == ADDED
    assert "--editable .[dev]" in (checkout / "ran").read_text()
    assert set_up(checkout, "--dev") == set_up(checkout) == ""
    # Other requirements: all is looked at again.
    os.utime(checkout / "pyproject.toml")
    os.utime(checkout / ".venv" / ".set-up", (1, 1))
    assert set_up(checkout, "--dev") == WHOLE


def test_a_new_checkout_is_set_up_whole_for_tests(checkout: Path) -> None:
    assert set_up(checkout, "--dev") == WHOLE
    assert set_up(checkout) == ""
