"""What benchmarks share: an engine, capsules that are built once, and a folder to work in."""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsule_build.engine import Engine, select_engine
from capsule_build.fetch import Cache
from capsule_build.runtime.archive import extract_bundle
from capsule_build.runtime.process import run

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

    def build(self, output: Path, *arguments: str) -> Any:
        """Build a node24 capsule by the command line, and return what it printed of it."""
        engine = ["--container-cli", self.engine.name, "--newer-pins", "--json"]
        result = run([str(COMMAND), "node24", str(output), *engine, *arguments])
        return json.loads(result.stdout)["bundles"][0]

    @functools.cache  # noqa: B019 - one Bench lives as long as the program
    def bundle(self, libc: str) -> Path:
        """Return a capsule for a libc, built when it is first asked for."""
        output = self.folder / f"{libc}.tar.gz"
        self.say(f"Building the {libc} capsule")
        self.build(output, "--libc", libc)
        return output

    @functools.cache  # noqa: B019 - one Bench lives as long as the program
    def tree(self, libc: str) -> Path:
        """Return that capsule unpacked."""
        tree = self.folder / f"tree-{libc}"
        extract_bundle(self.bundle(libc), tree)
        return tree

    def record(self, libc: str) -> Any:
        """Return the build record of that capsule."""
        bundle = self.bundle(libc)
        return json.loads(bundle.with_name(bundle.name + ".build.json").read_bytes())
