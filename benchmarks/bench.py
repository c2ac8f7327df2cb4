"""What benchmarks share: an engine, capsules that are built once, and a folder to work in."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.engine import Engine, select_engine
from capsule_build.fetch import Cache
from capsule_build.runtime.archive import extract_bundle
from capsule_build.runtime.process import run
from tests.integration.pythons import made

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

COMMAND = Path(sys.executable).with_name("capsule-build")


@dataclass(eq=False)
class Bench:
    """The place where benchmarks run.

    Attributes:
        folder: A folder on the inputs' file system, removed afterwards.
        runs: How many times each side of a figure is run.
        engine_name: Which engine; `None`: the one that the command would choose.
        say: Hears what is going on.
        stack: Ends what was opened for the benchmarks.
    """

    folder: Path
    runs: int
    engine_name: str | None
    say: Callable[[str], None]
    stack: ExitStack

    @functools.cached_property
    def engine(self) -> Engine:
        """The engine, opened when it is first asked for."""
        return self.stack.enter_context(select_engine(self.engine_name, say=self.say))

    @functools.cached_property
    def cache(self) -> Cache:
        """The cache of inputs."""
        return Cache()

    def build(self, output: Path, *arguments: str, recipe: str = "node24") -> Any:
        """Build a capsule by the command line, and return what it printed of it."""
        engine = ["--container-cli", self.engine.name, "--newer-pins", "--json"]
        result = run([str(COMMAND), recipe, str(output), *engine, *arguments])
        return json.loads(result.stdout)["bundles"][0]

    @functools.cache  # noqa: B019 - one Bench lives as long as the program
    def bundle(self, libc: str) -> Path:
        """Return a node24 capsule for a libc, built when it is first asked for."""
        output = self.folder / f"{libc}.tar.gz"
        self.say(f"Building the {libc} capsule")
        self.build(output, "--libc", libc)
        return output

    @functools.cache  # noqa: B019 - one Bench lives as long as the program
    def python_bundle(self, name: str) -> Path | None:
        """Return one of the Python capsules that the tests know (`tests.integration.pythons.NAMES`).

        Where CPython's own release can't be reached, what stands in for it in the tests does here.

        Returns:
            The bundle; `None` where neither is there, which is said.
        """
        try:
            how = made(name)
        except pytest.skip.Exception as reason:
            self.say(f"No Python capsule '{name}' can be made here: {reason}")
            return None
        output = self.folder / f"python-{name}.tar.gz"
        self.say(f"Building {how.recipe} {how.python} for {how.libc}")
        self.build(output, *how.options, recipe=how.recipe)
        return output

    @functools.cache  # noqa: B019 - one Bench lives as long as the program
    def unpacked(self, bundle: Path) -> Path:
        """Return a folder that holds what is in a bundle."""
        tree = self.folder / f"tree-{bundle.name.removesuffix('.tar.gz')}"
        extract_bundle(bundle, tree)
        return tree

    def tree(self, libc: str) -> Path:
        """Return the node24 capsule for a libc unpacked."""
        return self.unpacked(self.bundle(libc))


def record(bundle: Path) -> Any:
    """Return the build record of a bundle."""
    return json.loads(bundle.with_name(bundle.name + ".build.json").read_bytes())
