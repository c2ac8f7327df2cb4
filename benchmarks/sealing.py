"""What the benchmarks of seal-tree share: a capsule at the place that is compiled into its tools."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.archive import check_bundle, extract_bundle

if TYPE_CHECKING:
    from .bench import Bench

# From a process of its own, which is small: until a program starts, its parent's size counts as its own.
_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@functools.cache
def installed_capsule(bench: Bench) -> Path:
    """Return the glibc capsule at its install root; what was not there before is removed afterwards."""
    bundle = bench.bundle("glibc")
    root = Path(check_bundle(bundle).manifest.install_root)
    if not root.exists():
        root.parent.mkdir(parents=True, exist_ok=True)
        bench.stack.callback(shutil.rmtree, root, ignore_errors=True)
        extract_bundle(bundle, root)
    return root


def peak_mb(*argv: str) -> float:
    """Return the most memory that a program takes, in MB."""
    command = [sys.executable, "-S", "-E", "-c", _PEAK, *argv]
    return int(subprocess.run(command, check=True, capture_output=True).stdout) * 1024 / 1e6
