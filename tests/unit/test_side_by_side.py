"""tools/side-by-side.sh: two commands at once, of which none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule_build.runtime.process import run

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[2] / "tools" / "side-by-side.sh"


@pytest.mark.parametrize(
    ("first", "second", "code", "output"),
    [
        ("echo one", "echo two", 0, "two\none\n"),
        ("echo one; sleep 1.5; echo late", "echo two", 0, "two\none\nlate\n"),
        ("echo one; exit 3", "echo two", 3, "two\none\n"),
        ("echo one", "echo two; exit 4", 4, "two\none\n"),
    ],
)
def test_both_run_to_their_ends(first: str, second: str, code: int, output: str) -> None:
    result = run(["sh", str(SCRIPT), first, second], check=False)
    assert result.code == code
    assert sorted(line for line in result.text.split("\n") if line) == sorted(output.split())


def test_one_that_has_ended_is_shown_while_the_other_goes_on(tmp_path: Path) -> None:
    wait = f"i=0; while [ ! -e {tmp_path}/go ] && [ $i -lt 20 ]; do sleep 0.5; i=$((i + 1)); done; echo two"
    result = run(["sh", str(SCRIPT), "echo one", f"(sleep 2.5; touch {tmp_path}/go) & {wait}"])
    assert [line for line in result.text.split("\n") if line] == ["one", "two"]
