"""Packing the tree of node24, against GNU tar and gzip on the same tree."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from capsule_build.runtime.process import run

from .figures import Figure, alternate

if TYPE_CHECKING:
    from .bench import Bench

_OURS = """
import sys
from pathlib import Path
from capsule_build.pack import pack
with open(sys.argv[2], "wb") as out:
    pack(Path(sys.argv[1]), out, epoch=0)
"""


def measure(bench: Bench) -> list[Figure]:
    """Time and size; ours runs as a program of its own too, so that its start counts."""
    tree = bench.tree("glibc")
    ours, theirs = bench.folder / "ours.tar.gz", bench.folder / "theirs.tar.gz"
    tar = "tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0"
    pipeline = f"{tar} -C {shlex.quote(str(tree))} -cf - . | gzip -6 -n > {shlex.quote(str(theirs))}"
    times = alternate(
        bench.runs,
        lambda: run([sys.executable, "-c", _OURS, str(tree), str(ours)]),
        lambda: run(["sh", "-c", pipeline]),
    )
    sizes = [path.stat().st_size / 1e6 for path in (ours, theirs)]
    return [
        Figure("packing, time", times[0], "tar | gzip -6", times[1], "s", at_most=1 / 2.5),
        Figure("packing, size", sizes[0], "tar | gzip -6", sizes[1], "MB", at_most=1.04),
    ]
