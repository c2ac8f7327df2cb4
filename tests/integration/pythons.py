"""Python capsules for tests: built by the project's own command line, each once in a run.

CPython's own archives come from a release on GitHub. Where that can't be reached, others in the same layout
stand in for them: this machine's CPython 3.12 for glibc, and a CPython 3.13 for musl.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from capsule_build.fetch.github import ORIGIN
from capsule_build.runtime.archive import extract_bundle
from capsule_build.runtime.files import sha256_file
from capsule_build.runtime.manifest import install_root
from capsule_build.runtime.platforms import Platform, host_architecture
from capsule_build.runtime.process import run
from tests import images
from tests.integration.capsules import cli_json, run_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from capsule_build.engine import Engine, Outcome

Bind = tuple[str, str, Literal["ro", "rw"]]

PROGRAMS: Final = "/programs"
NAMES: Final = ("glibc", "musl", "both")
"""The capsules: Python for glibc, Python for musl, and Python with Node.js and uv for glibc."""

_SHARED: Final = Path(os.environ.get("CAPSULE_SHARED") or Path(__file__).parents[3] / "shared")
_GLIBC_SCRIPT: Final = "standins/glibc-cpython-312.sh"
_MUSL_ARCHIVE: Final = "standins/cpython-3.13.5-x86_64-unknown-linux-musl-install_only.tar.gz"
_PACKING_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Made:
    """How a capsule is made here: its recipe, its libc, its Python, and the options that say so."""

    recipe: str
    libc: str
    python: str
    options: tuple[str, ...]

    @property
    def series(self) -> str:
        return self.python.rpartition(".")[0]

    @property
    def version(self) -> str:
        return f"{self.python}-24.19.0" if "node" in self.recipe else self.python

    @property
    def root(self) -> str:
        return install_root(self.recipe, self.version, Platform(host_architecture(), self.libc))

    @property
    def program(self) -> str:
        """The absolute path of its CPython."""
        return f"{self.root}/runtime/python/bin/python{self.series}"

    @property
    def own_origin(self) -> bool:
        """Whether it is made of the pinned archive."""
        return not any("--source" in option for option in self.options)


def made(name: str) -> Made:
    """Return how one of `NAMES` is made here; skips the test where it can't be."""
    recipe = {"glibc": "python3.12", "musl": "python3.12", "both": "python3.12-node24"}[name]
    libc = "musl" if name == "musl" else "glibc"
    if origin_answers():
        return Made(recipe, libc, "3.12.10", ("--libc", libc))
    if name == "musl":
        archive = _standin(_MUSL_ARCHIVE)
        if host_architecture() != "x86_64":
            pytest.skip("CPython's origin can't be reached, and the stand-in for musl is for x86_64")
        return Made("python3.13", libc, "3.13.5", ("--libc", libc, "--source", f"cpython={archive}"))
    archive, version = glibc_standin()
    return Made(recipe, libc, version, ("--source", f"cpython={archive}", "--python-version", version))


@cache
def origin_answers() -> bool:
    """Whether the releases of CPython can be reached from here."""
    try:
        with urllib.request.urlopen(ORIGIN, timeout=10):
            return True
    except (urllib.error.URLError, OSError):
        return False


@cache
def glibc_standin() -> tuple[Path, str]:
    """Return this machine's CPython 3.12 as an archive in upstream's layout, and its version."""
    script = _standin(_GLIBC_SCRIPT)
    prefix = installed_prefix()
    folder = images.state_folder() / "standins"
    folder.mkdir(exist_ok=True)
    archive = folder / f"cpython-{prefix.name}-{sha256_file(script)[:16]}.tar.gz"
    if not archive.exists():
        part = folder / f"part-{os.getpid()}.tar.gz"
        run(["bash", str(script), str(part), str(prefix)], timeout=_PACKING_SECONDS)
        part.replace(archive)
    return archive, prefix.name


def installed_prefix() -> Path:
    """Return this machine's newest CPython 3.12 of pyenv's; skips the test where there is none."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = sorted((root / "versions").glob("3.12.*"), key=lambda path: int(path.name.rpartition(".")[2]))
    if not found:
        pytest.skip(f"CPython's origin can't be reached, and there is no CPython 3.12 under {root}")
    return found[-1]


def _standin(name: str) -> Path:
    path = _SHARED / name
    if not path.is_file():
        pytest.skip(f"CPython's origin can't be reached, and there is no {path} to stand in")
    return path


@dataclass(frozen=True)
class PythonCapsule:
    """A bundle that was built, and how."""

    made: Made
    path: Path
    sha256: str
    said: Mapping[str, Any]


class PythonCapsules:
    """Builds Python capsules when they are first asked for, and keeps them for the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[tuple[str, str], PythonCapsule] = {}
        self._trees: dict[str, Path] = {}

    def built(self, name: str, engine: str = "podman") -> PythonCapsule:
        """Return one of `NAMES`, built by an engine."""
        key = (name, engine)
        if key not in self._built:
            how = made(name)
            # Under the name that it has in dist/, so that a release can take it as it is.
            dist = self._folder / engine
            dist.mkdir(exist_ok=True)
            path = dist / Path(cli_json("plan", how.recipe, *how.options)["output"]).name
            options = (*how.options, "--container-cli", engine, "--newer-pins")
            (said,) = cli_json(how.recipe, path, *options)["bundles"]
            self._built[key] = PythonCapsule(how, path, said["sha256"], said)
        return self._built[key]

    def tree(self, name: str) -> Path:
        """Return Podman's capsule, unpacked; tests that write to it take a copy."""
        if name not in self._trees:
            tree = self._folder / f"tree-{name}"
            extract_bundle(self.built(name).path, tree)
            self._trees[name] = tree
        return self._trees[name]


class PythonPlace:
    """An image with a capsule in it, read-only, at its install root."""

    def __init__(self, engine: Engine, kind: str, how: Made, tree: Path, programs: Path) -> None:
        self.made = how
        self.root = how.root
        self._engine = engine
        self._image = images.image(engine, kind)
        self._binds: tuple[Bind, ...] = ((str(tree), self.root, "ro"), (str(programs), PROGRAMS, "ro"))

    def run(self, *argv: str, binds: tuple[Bind, ...] = (), **options: Any) -> Outcome:
        """Run a program in a new container; `{root}` in an argument stands for the install root."""
        filled = [argument.replace("{root}", self.root) for argument in argv]
        return run_in(self._engine, self._image, *filled, binds=(*self._binds, *binds), **options)

    def program(self, name: str, *arguments: str, **options: Any) -> Outcome:
        """Run one of the programs of tests by the capsule's `bin/python`."""
        return self.run("{root}/bin/python", f"{PROGRAMS}/{name}", *arguments, **options)

    def shell(self, script: str, **options: Any) -> Outcome:
        """Run a script by the capsule's bash, which need not find anything of the image."""
        return self.run("{root}/libexec/bash", "-ec", script, **options)
