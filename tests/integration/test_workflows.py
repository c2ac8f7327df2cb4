"""The linter of workflows finds what is wrong with one; `make check` holds the project's own against it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from capsule_build.runtime.process import run

pytestmark = pytest.mark.network

LINTER = Path(__file__).parents[2] / "tools" / "lint_workflows.py"
GOOD = """name: Good
on: push
permissions: {}
concurrency:
  group: good
  cancel-in-progress: true
jobs:
  one:
    name: One
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    steps:
      - run: echo fine
"""


def lint(checkout: Path, text: str) -> tuple[int, str]:
    folder = checkout / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "one.yml").write_text(text)
    result = run([sys.executable, str(LINTER), str(checkout)], check=False, timeout=120)
    return result.code, result.text + result.error_text


def test_a_good_workflow_passes(tmp_path: Path, input_cache: Path) -> None:
    code, said = lint(tmp_path, GOOD)
    assert code == 0, said


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        ("ubuntu-24.04", "ubuntu-1.0", "[runner-label]"),
        ("echo fine", "echo ${{ nothing.of.that }}", "[expression]"),
        ("run: echo fine", "uses: actions/checkout@v5", "unpinned-uses"),
        ("echo fine", "echo ${{ github.event.head_commit.message }}", "template-injection"),
        ("permissions: {}", "permissions: write-all", "excessive-permissions"),
    ],
)
def test_a_bad_one_does_not(tmp_path: Path, input_cache: Path, before: str, after: str, finding: str) -> None:
    assert before in GOOD
    code, said = lint(tmp_path, GOOD.replace(before, after))
    assert code == 1
    assert finding in said
