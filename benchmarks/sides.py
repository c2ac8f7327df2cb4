"""The two sides of the figures about tasks: our `capsule`, and that of `capsule-run` from its package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.process import Result, run

if TYPE_CHECKING:
    from .bench import Bench

VERSION = "0.8.10"
ADAPTER = "0.3.5"
OURS = Path(sys.executable).with_name("capsule")
HELLO = """from capsule import task

@task(name="main", compute="LOW", ram="64MB")
def main() -> str:
    return "Hello from Capsule!"
"""
# A user has its modules compiled, as pip leaves them.
_NOT_A_USERS = ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")


def theirs(bench: Bench) -> Path:
    """Return their program, installed from its package when it is first asked for."""
    environment = bench.folder / "capsule-run"
    program = environment / "bin" / "capsule"
    if not program.exists():
        run([sys.executable, "-m", "venv", str(environment)])
        run([str(environment / "bin" / "pip"), "install", "-q", f"capsule-run=={VERSION}"], timeout=600)
    return program


def adapter(bench: Bench) -> Path:
    """Return their program, as `theirs` does, with their adapter for Python programs beside it."""
    program = theirs(bench)
    run([str(program.with_name("pip")), "install", "-q", f"capsule-run-adapter=={ADAPTER}"], timeout=600)
    return program


def variables(program: Path) -> dict[str, str]:
    """Return the variables with which a user of a program runs it."""
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    return {**{key: value for key, value in os.environ.items() if key not in _NOT_A_USERS}, "PATH": path}


def run_in(folder: Path, program: Path, *words: str) -> Result:
    """Run a program in a folder."""
    return run([str(program), *words], cwd=folder, env=variables(program), timeout=600)


def new_folder(bench: Bench, name: str) -> Path:
    """Make a folder for a benchmark's files."""
    folder = bench.folder / name
    folder.mkdir()
    return folder
