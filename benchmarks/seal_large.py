"""Sealing a single-file program of 400 MB, against copying it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from capsule_build.runtime.process import run

from .figures import Figure, alternate
from .sealing import installed_capsule, peak_mb

if TYPE_CHECKING:
    from .bench import Bench

_BYTES = 400_000_000
_SOURCE = r"""
#include <stdio.h>
int main(void) { puts("hello"); return 0; }
"""


def measure(bench: Bench) -> list[Figure]:
    """A program with a payload in an own section, as single-file JavaScript programs have it."""
    folder = bench.folder / "large-program"
    folder.mkdir()
    plain, blob, original, copy = (folder / name for name in ("plain", "blob", "original", "copy"))
    root = folder / "root"
    root.mkdir()
    loader = "/lib/ld-linux-that-is-not-here.so.2"
    run(
        ["gcc", "-O1", "-o", str(plain), "-x", "c", "-", f"-Wl,--dynamic-linker={loader}"],
        stdin=_SOURCE.encode(),
    )
    with blob.open("wb") as stream:
        for _ in range(_BYTES // 1_000_000):
            stream.write(bytes(range(250)) * 4000)
    run(["objcopy", f"--add-section=.payload={blob}", str(plain), str(original)])
    argv = [str(installed_capsule(bench) / "bin/seal-tree"), "--any-root", str(root)]
    program = root / "agent"

    def unsealed() -> None:
        program.unlink(missing_ok=True)
        shutil.copy(original, program)

    def seal() -> None:
        unsealed()
        run(argv)

    def copied() -> None:
        unsealed()
        run(["cp", str(original), str(copy)])

    seal()
    if run([str(program)]).text != "hello\n":
        raise RuntimeError("the sealed program doesn't run")
    # Each round begins with a fresh copy: the time of that alone is taken off.
    sealing, copying, preparing = alternate(bench.runs, seal, copied, unsealed)
    unsealed()
    memory = peak_mb(*argv)
    unsealed()
    patchelf = [str(installed_capsule(bench) / "libexec/patchelf"), "--set-interpreter", loader, str(program)]
    return [
        Figure(
            "seal-tree, one program of 400 MB",
            sealing - preparing,
            "cp",
            copying - preparing,
            "s",
            at_most=1.5,
        ),
        Figure("peak memory, seal-tree, 400 MB", memory, "limit", 32 * 1.048576, "MB", at_most=1.0),
        Figure("peak memory, seal-tree, 400 MB", memory, "patchelf", peak_mb(*patchelf), "MB"),
    ]
