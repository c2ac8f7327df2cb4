"""What `make capsule` shows at its end can be read, copied and done."""

from __future__ import annotations

import re
from pathlib import Path

from capsule_build.resources import recipes_dir
from capsule_build.runtime.process import run

TOP = Path(__file__).parents[2]
SCRIPT = TOP / "tools" / "first-capsule.sh"


def shown() -> list[str]:
    """The text, as it is for the longest names."""
    text = SCRIPT.read_text()
    names = "libc=glibc other=musl bundle=dist/node24-v1-linux-aarch64-glibc.tar.gz\n"
    return run(["sh", "-eu", "-c", names + text[text.index("cat <<EOT") :]]).text.splitlines()


def test_what_to_try_next_fits_into_80_columns() -> None:
    lines = shown()
    assert sum("dist/node24-v1-linux-aarch64-glibc.tar.gz" in line for line in lines) == 2
    assert [line for line in lines if len(line) > 80] == []


def test_every_file_that_is_named_is_there() -> None:
    named = re.findall(r"\b(?:docs|examples)/\S+", "\n".join(shown()))
    assert "docs/tutorial.md" in named
    assert [name for name in named if not (TOP / name).is_file()] == []
    assert (recipes_dir() / "node24.toml").is_file()


def test_one_engine_is_chosen_for_all_of_it() -> None:
    """So that which one is used, and why, is said once."""
    builds = re.findall(r"^\.venv/bin/capsule-build (?:node24|test) .*$", SCRIPT.read_text(), re.MULTILINE)
    assert len(builds) == 2
    assert all('--container-cli "$engine"' in line for line in builds)
