"""Where builds fail on purpose: a previous bundle has to survive, and engines must stay clean."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capsule_build.resources import recipes_dir, templates_dir
from tests.integration.capsules import cli, cli_json, containers_of, platform

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from capsule_build.engine import Engine
    from capsule_build.runtime.process import Result

SECONDS: Final = 240.0
_LAST_NATIVE_STEP: Final = (
    'RUN ["/bin/sh", "/scripts/native.sh", "{{ arch }}", "{{ root }}", "/capsule"'
    '{% for wrapper in wrappers | default([]) %}, "{{ wrapper }}"{% endfor %}]\n'
)


class Ground:
    """A dist folder with a previous bundle, and a cache of its own that holds all inputs.

    Attributes:
        output: The bundle's path, where a previous one lies.
        cache: The cache; its files are hard links, so they are replaced and never written to.
        variables: What the environment of a build must have.
        recipes: A copy of the project's recipes and templates, to be changed.
    """

    def __init__(self, folder: Path, inputs: Path, engine: Engine | None = None) -> None:
        self.folder = folder
        self.dist = folder / "dist"
        self.dist.mkdir()
        self.output = self.dist / f"node24-v1-{platform('musl')}.tar.gz"
        self._engine = engine
        self._previous = {
            self.output: b"the previous bundle",
            self.output.with_name(self.output.name + ".build.json"): b"the previous record",
        }
        for path, content in self._previous.items():
            path.write_bytes(content)
        self.cache = folder / "cache"
        (self.cache / "sha256").mkdir(parents=True)
        for path in (inputs / "sha256").iterdir():
            os.link(path, self.cache / "sha256" / path.name)
        self.recipes = folder / "recipes"
        shutil.copytree(recipes_dir(), self.recipes)
        shutil.copytree(templates_dir(), self.recipes / "templates")
        self.variables: dict[str, str | None] = {"CAPSULE_CACHE_DIR": str(self.cache)}
        self._containers = self._containers_now()

    def arguments(self, *more: str) -> list[str]:
        """Return the arguments of a build of the capsule that lies in dist already."""
        engine = ["--container-cli", self._engine.name] if self._engine else []
        recipes = ["--recipes", str(self.recipes)]
        return ["node24", str(self.output), "--libc", "musl", *engine, *recipes, *more]

    def build(self, *more: str, env: Mapping[str, str | None] | None = None) -> Result:
        """Try a build, whatever comes of it."""
        return cli(*self.arguments(*more), env={**self.variables, **(env or {})}, timeout=SECONDS)

    def change(self, name: str, old: str, new: str) -> None:
        """Replace text in a file of the recipes."""
        path = self.recipes / name
        text = path.read_text()
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new))

    def add_step(self, script: str) -> None:
        """Add a step to the build, behind those that engines have in their caches."""
        step = f'RUN ["/bin/sh", "-c", "{script}"]\n'
        self.change("templates/capsule.Dockerfile.j2", _LAST_NATIVE_STEP, _LAST_NATIVE_STEP + step)

    def digest_of(self, component: str) -> str:
        """Return the digest of an input that a build here takes."""
        planned = cli_json("plan", "node24", "--libc", "musl")["inputs"]
        return next(str(item["sha256"]) for item in planned if item["component"] == component)

    def assert_untouched(self) -> None:
        """Fail unless the previous bundle is what it was, and nothing new lies anywhere."""
        assert {path: path.read_bytes() for path in self.dist.iterdir()} == self._previous
        assert self.staged() == []
        assert self._containers_now() == self._containers

    def staged(self) -> list[Path]:
        """Return what lies in the cache's staging folder."""
        return sorted((self.cache / "staging").rglob("*"))

    def _containers_now(self) -> set[str]:
        return containers_of(self._engine) if self._engine else set()


def processes_with(marker: str) -> list[int]:
    """Return the processes of this machine that have `marker` as one of their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def assert_one_error(result: Result, code: int, *mentioned: str) -> None:
    """Fail unless a run ended with `code` and said one error, which mentions all of `mentioned`."""
    text = result.error_text
    assert result.code == code, text
    assert_said_once(text.splitlines(), "error:")
    assert "Traceback" not in text
    said = text[text.index("error:") :]
    for words in mentioned:
        assert words in said, said


def assert_said_once(lines: Iterable[str], start: str) -> None:
    """Fail unless exactly one line starts so."""
    assert len([line for line in lines if line.startswith(start)]) == 1, lines
