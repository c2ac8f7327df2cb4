"""What is said of a container whose engine isn't to be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.environments import open_environment
from capsule_build.runtime.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

UNANSWERED = "#!/bin/sh\necho 'Cannot connect to it' >&2; exit 125\n"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def command(tools: Path, name: str) -> None:
    (tools / name).write_text(UNANSWERED)
    (tools / name).chmod(0o755)


@pytest.mark.parametrize(("engine", "other"), [("docker", "podman"), ("podman", "docker")])
@pytest.mark.parametrize("installed", [True, False])
def test_where_an_engine_is_not_to_be_had_the_other_is_named_if_it_is_here(
    tools: Path, engine: str, other: str, installed: bool
) -> None:
    asked = f"{other.capitalize()} is here: is the container {other}:web?"
    said = f"{engine} doesn't answer: Cannot connect" if installed else f"'{engine}' is not installed"
    if installed:
        command(tools, engine)
    with pytest.raises(EngineError, match=said) as alone:
        open_environment(f"{engine}:web")
    assert "is here" not in (alone.value.hint or "")
    command(tools, other)
    with pytest.raises(EngineError, match=said) as both:
        open_environment(f"{engine}:web")
    assert both.value.hint == f"{alone.value.hint} {asked}"
