"""A small bundle as a file, and all that is read of one.

`bundle` is a fixture: a test module imports it.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.archive import (
    BundleInfo,
    BundleReader,
    Member,
)
from tests.bundles import small_bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "small.tar.gz"
    path.write_bytes(small_bundle().data())
    return path


def read_all(data: bytes) -> tuple[BundleInfo, list[tuple[Member, bytes]]]:
    reader = BundleReader(io.BytesIO(data))
    members = [(member, content.read()) for member, content in reader]
    return reader.info, members
