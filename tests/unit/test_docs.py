"""Documents send their readers where there is something to read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
DOCUMENTS = sorted([*TOP.glob("*.md"), *(TOP / "docs").glob("*.md")])
# These pages belong together: whoever reads one goes on to another.
LINKED = ("bundle", "licences", "release", "sbom", "signing")


def prose(path: Path) -> str:
    """What a document says outside its examples."""
    return re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose(path))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_an_example_in_python_is_a_file_that_can_be_run(path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for number, example in enumerate(examples):
        compile(example, f"{path.name}: example {number + 1}", "exec")


@pytest.mark.parametrize("name", LINKED)
def test_a_page_that_is_named_is_a_link(name: str) -> None:
    text = re.sub(r"\[[^\]]*\]\([^)]*\)", "", prose(TOP / "docs" / f"{name}.md"))
    assert re.findall(r"\b(?:docs/)?[a-z-]+\.md\b", text) == []
