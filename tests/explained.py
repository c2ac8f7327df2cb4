"""A tree of made files, and why a program in it can't start.

`root` is a fixture, and `variables` one for all tests of a module that imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.errors import TargetError
from capsule_build.runtime.why import Explanation
from capsule_build.runtime.why import explain as why
from tests.elves import ElfSpec, make_elf
from tests.targets import Rerooted, make_tmp

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from capsule_build.runtime.process import Result

GLIBC = "/lib64/ld-linux-x86-64.so.2"
MUSL = "/lib/ld-musl-x86_64.so.1"
LOADER = make_elf(ElfSpec(soname="ld-linux-x86-64.so.2", defines=("GLIBC_2.2.5", "GLIBC_PRIVATE")))
LIBC = make_elf(
    ElfSpec(
        soname="libc.so.6",
        needed=("ld-linux-x86-64.so.2",),
        defines=("libc.so.6", "GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.31", "GLIBC_PRIVATE"),
    )
)
MUSL_LOADER = make_elf(ElfSpec(soname="libc.musl-x86_64.so.1"))


class Tree(Rerooted):
    """A folder as an environment in which nothing can be run: neither a probe nor a loader."""

    def run(self, argv: Sequence[str], **_: object) -> Result:
        raise TargetError(f"'{argv[0]}' can't be run")


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with glibc 2.31, whose programs are for this machine as far as it goes."""
    made = make_tmp(tmp_path / "root")
    write(made, GLIBC, LOADER)
    write(made, "/lib/x86_64-linux-gnu/libc.so.6", LIBC)
    return made


def write(root: Path, path: str, data: bytes, mode: int = 0o755) -> None:
    there = root / path.lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(data)
    there.chmod(mode)


def link(root: Path, path: str, target: str) -> None:
    there = root / path.lstrip("/")
    there.parent.mkdir(parents=True, exist_ok=True)
    there.symlink_to(target)


def glibc(*needed: str, **more: object) -> bytes:
    spec = {"interpreter": GLIBC, "needed": (*needed, "libc.so.6"), "pie": True, **more}
    return make_elf(ElfSpec(**spec))  # type: ignore[arg-type]  # the fields of a specification


def kinds(found: Explanation) -> list[str]:
    return [problem.kind for problem in found.problems]


def explain(root: Path, path: str = "/program") -> Explanation:
    return why(path, Tree(root))
