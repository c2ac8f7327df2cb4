"""The tutorial in docs/tutorial.md, run as it stands, but for building the capsule and the image's name."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from capsule_build.runtime.process import run
from tests import images
from tests.integration.capsules import COMMAND
from tests.integration.test_node24_setup import registry_access
from tests.targets import registry_of

if TYPE_CHECKING:
    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(600)]

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "tutorial.md"
_BLOCK: Final = re.compile(r"<!-- tutorial: (?P<what>\S+) -->\n```\w+\n(?P<text>.*?)```\n", re.DOTALL)
_IMAGE: Final = "debian:bullseye-slim"
_CONTAINER: Final = "old-debian"
_BUILD: Final = "make capsule\n"


def blocks(what: str) -> list[str]:
    """The tutorial's fenced blocks of a kind."""
    return [found["text"] for found in _BLOCK.finditer(DOCUMENT.read_text()) if found["what"] == what]


def test_every_fenced_block_is_run() -> None:
    assert DOCUMENT.read_text().count("```") == 2 * (len(blocks("run")) + len(blocks("codex.json")))
    assert len(blocks("run")) > 3
    for replaced in (_IMAGE, _BUILD):
        assert sum(block.count(replaced) for block in blocks("run")) == 1


def old_debian(engine: Engine, folder: Path) -> str:
    """An image of an old Debian that reaches npm's registry as this machine is configured to."""
    tree = folder / "tree"
    tree.mkdir()
    run(["tar", "--extract", "--directory", str(tree), "--file", str(images.root_tar("bullseye"))])
    variables, binds = registry_access()
    for source, place, _ in binds:
        there = tree / place.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, there)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", tree / "etc" / name)
    context = folder / "context"
    context.mkdir()
    base = images.image_from_tree(engine, tree, "tutorial-base")
    lines = [f'ENV {name}="{value}"' for name, value in variables.items()]
    (context / "Dockerfile").write_text("\n".join([f"FROM {base}", *lines, ""]))
    tag = f"localhost/{images.TAG}/tutorial:latest"
    engine.build(context, tag=tag, labels={}, on_line=lambda _: None)
    return tag


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_the_tutorial_works(engine: Engine, capsules: Capsules, tmp_path: Path) -> None:
    built = capsules.built("podman", "glibc")
    (tmp_path / "dist").mkdir()
    os.link(built.path, tmp_path / "dist" / built.path.name)
    lock = tmp_path / "registry.lock.json"
    lock.write_bytes(registry_of(built.path).to_bytes())
    (tmp_path / "codex.json").write_text(blocks("codex.json")[0])
    commands = "".join(blocks("run")).replace(_BUILD, "").replace(_IMAGE, old_debian(engine, tmp_path))
    environment = {
        **os.environ,
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "CAPSULE_REGISTRY_LOCK": str(lock),
    }
    try:
        ran = run(
            ["/bin/sh", "-c", f"set -eu\n{commands}"], env=environment, cwd=tmp_path, timeout=500, check=False
        )
    finally:
        run([engine.name, "rm", "--force", _CONTAINER], check=False)
    assert ran.code == 0, ran.text + ran.error_text
    assert re.search(r"^codex-cli \d+\.\d+\.\d+$", ran.text, re.MULTILINE)
    assert f"node24-v1  removed\n{_CONTAINER}\n" in ran.text
    assert "Nothing was found that keeps" in ran.text
    assert "Sealing: It is sealed" in ran.text
