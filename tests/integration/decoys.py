"""Libraries that end whoever loads them, under the names of those that a program needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from capsule_build.runtime.process import run

if TYPE_CHECKING:
    from pathlib import Path

# It needs no library itself, so that nothing but its constructor can be what ends the program.
_SOURCE: Final = "__attribute__((constructor)) static void spring(void) { __builtin_trap(); }\n"
_USER: Final = "int main(void) { return 0; }\n"

COMPILERS: Final = {"glibc": "gcc", "musl": "musl-gcc"}
_MACHINE: Final = os.uname().machine
NAMES: Final = {
    "glibc": (
        *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"),
        *("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libresolv.so.2", "libnss_files.so.2"),
        *("libnss_dns.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
    ),
    "musl": (
        *("libc.so", f"libc.musl-{_MACHINE}.so.1", f"ld-musl-{_MACHINE}.so.1"),
        *("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1"),
    ),
}


def write_decoys(folder: Path, libc: str) -> None:
    """Write a decoy of a libc's ABI under every name of `NAMES`."""
    source = folder / "decoy.c"
    source.write_text(_SOURCE)
    decoy = folder / "decoy.so"
    _compile(libc, "-shared", "-fPIC", "-nostdlib", "-o", decoy, source)
    for name in NAMES[libc]:
        (folder / name).write_bytes(decoy.read_bytes())
    source.unlink()
    decoy.unlink()


def write_victim(folder: Path, libc: str) -> Path:
    """Write a program of this machine that needs libz.so.1, and finds a harmless one by its RUNPATH."""
    source, nothing = folder / "victim.c", folder / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    nothing.write_text("int capsule_test_nothing;\n")
    library = folder / "libz.so.1"
    _compile(libc, "-shared", "-fPIC", "-Wl,-soname,libz.so.1", "-o", library, nothing)
    program = folder / "victim"
    runpath = f"-Wl,--enable-new-dtags,-rpath,{folder}"
    _compile(libc, "-o", program, source, "-Wl,--no-as-needed", library, runpath)
    return program


def _compile(libc: str, *arguments: str | Path) -> None:
    run([COMPILERS[libc], *map(str, arguments)])
