"""What a capsule adds to the archives that it is made of: private C libraries, tools, licence texts."""

from __future__ import annotations

import tarfile
import zlib
from typing import TYPE_CHECKING

from tests.integration.capsules import LIBCS
from tests.integration.pythons import NAMES

from .bench import record
from .figures import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import Bench

LIMIT_BYTES = 12_000_000


def measure(bench: Bench) -> list[Figure]:
    """Each capsule that can be made here, compressed, without its runtimes' archives and without bytecode."""
    bundles = {f"node24, {libc}": bench.bundle(libc) for libc in LIBCS}
    for name in NAMES:
        bundle = bench.python_bundle(name)
        if bundle is not None:
            bundles[bundle.name.removesuffix(".tar.gz")] = bundle
    return [
        Figure(f"overhead of {name}", added(bundle) / 1e6, "limit", LIMIT_BYTES / 1e6, "MB", at_most=1.0)
        for name, bundle in bundles.items()
    ]


def added(bundle: Path) -> int:
    """Return how many bytes a bundle has beside upstream's archives and the bytecode that the build makes."""
    upstream = sum(item["size"] for item in record(bundle)["inputs"] if item["role"] == "runtime")
    return bundle.stat().st_size - int(upstream) - _packed_size(bundle, ".pyc")


def _packed_size(bundle: Path, suffix: str) -> int:
    packed = zlib.compressobj(6)
    size = 0
    with tarfile.open(bundle, "r|gz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.name.endswith(suffix) else None
            if stream is not None:
                size += len(packed.compress(stream.read()))
    return size + len(packed.flush())
