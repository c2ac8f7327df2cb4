"""A folder of bundles, and the registry lock that they are for.

`dist` and `lock` are fixtures: a test module imports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import Variant, load_registry
from tests.releases import TAG

if TYPE_CHECKING:
    from pathlib import Path

GLIBC = Platform("x86_64", "glibc")
MUSL = Platform("x86_64", "musl")
BASE = "https://example.org/capsules"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    (tmp_path / "dist").mkdir()
    return tmp_path / "dist"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "registry.lock.json"


def variant(lock: Path, platform: Platform = MUSL) -> Variant:
    return load_registry(lock).capsules[TAG].variants[platform]
