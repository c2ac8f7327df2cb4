"""A folder that stands for /tmp, in memory, and a small bundle to install into it.

`tmp_path` and `ground` are fixtures: a test module imports them.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime import install
from tests.targets import CAPSULES, KINDS, TAG, host_libc, make_tmp, memory_folder, registry_of, small, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIBC = host_libc()
NAME = f"node24-24.19.0-linux-{os.uname().machine}-{LIBC}"


class Ground:
    """A place to install into, a store with a small bundle, and the registry lock that names it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.root = make_tmp(folder / "target")
        make: Any = KINDS[kind]
        self.environment: Any = make(self.root)
        self.store, self.bundle = stored(folder / "data", small(LIBC).data())
        self.registry = registry_of(self.bundle)
        self.place = self.root / CAPSULES / NAME

    def install(self, **options: Any) -> Any:
        return install(TAG, self.environment, registry=self.registry, store=self.store, **options)

    def supersede(self, text: str = "two") -> str:
        """Let the registry lock name another bundle; return the old one's digest."""
        old = hashlib.sha256(self.bundle.read_bytes()).hexdigest()
        self.bundle.write_bytes(small(LIBC, text=text).data())
        self.registry = registry_of(self.bundle)
        return old

    def text(self) -> str:
        return (self.place / "share/text").read_text()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory: installing waits for the disk, which other tests keep busy."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture(params=sorted(KINDS))
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return Ground(tmp_path, request.param)
