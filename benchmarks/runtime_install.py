"""Installing node24 on this machine and finding it in the store, against what one would type instead."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_build.runtime.archive import remove_tree
from capsule_build.runtime.files import sha256_file
from capsule_build.runtime.process import run
from tests.targets import host_libc, make_tmp, registry_of

from .figures import Figure, alternate

if TYPE_CHECKING:
    from .bench import Bench

_CHECKOUT = Path(__file__).parents[1]
_START = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
_INSTALL = (
    _START
    + """
from capsule_build.runtime import Store, install, load_registry
from tests.targets import Rerooted
lock, data, target = map(Path, sys.argv[2:])
install("node24-v1", Rerooted(target), registry=load_registry(lock), store=Store(data))
"""
)
_FIND = (
    _START
    + """
from capsule_build.runtime import Platform, Store, load_registry
found = load_registry(Path(sys.argv[2])).resolve("node24-v1", Platform.parse(sys.argv[4]))
Store(Path(sys.argv[3])).get(found)
"""
)
_IMPORT = (
    "import sys, time; sys.path.insert(0, sys.argv[1]); begun = time.perf_counter(); "
    "import capsule_build.runtime; print(time.perf_counter() - begun)"
)


def measure(bench: Bench) -> list[Figure]:
    """Ours runs as a program of its own, without site-packages unless said, so that its start counts."""
    libc = host_libc()
    data = bench.folder / "data"
    (data / "capsules").mkdir(parents=True)
    bundle = data / "capsules" / f"node24-{libc}.tar.gz"
    os.link(bench.bundle(libc), bundle)
    lock = bench.folder / "registry.lock.json"
    lock.write_bytes(registry_of(bundle).to_bytes())
    sums = bench.folder / "SHA256SUMS"
    sums.write_text(f"{sha256_file(bundle)}  {bundle}\n")
    numbers = itertools.count()
    made: list[Path] = []

    def target() -> str:
        made.append(make_tmp(bench.folder / f"target-{next(numbers)}"))
        return str(made[-1])

    def install(*options: str) -> None:
        run([sys.executable, *options, "-c", _INSTALL, str(_CHECKOUT), str(lock), str(data), target()])

    by_hand = f"sha256sum --quiet -c {sums} && tar -xzf {bundle} -C $0 && sync"
    plain, fast, theirs = alternate(
        bench.runs,
        lambda: install("-S", "-E"),
        install,
        lambda: run(["sh", "-c", by_hand, target()]),
    )
    for folder in made:
        remove_tree(folder)
    platform = f"linux-{os.uname().machine}-{libc}"
    find = ["-S", "-E", "-c", _FIND, str(_CHECKOUT), str(lock), str(data), platform]
    found, summed = alternate(
        bench.runs, lambda: run([sys.executable, *find]), lambda: run(["sha256sum", str(bundle)])
    )
    imports = [
        json.loads(run([sys.executable, "-S", "-c", _IMPORT, str(_CHECKOUT)]).stdout)
        for _ in range(bench.runs)
    ]
    shutil.rmtree(data)
    return [
        Figure(
            "local install, standard library", plain, "sha256sum -c && tar && sync", theirs, "s", at_most=1.0
        ),
        Figure("local install, with zlib_ng", fast, "sha256sum -c && tar && sync", theirs, "s", at_most=1.0),
        Figure("cached resolve and check", found, "sha256sum", summed, "s", at_most=1.15),
        Figure("import", 1000 * statistics.median(imports), "limit", 30.0, "ms", at_most=1.0),
    ]
