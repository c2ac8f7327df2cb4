"""A tree to pack, with the kinds of names and contents that a capsule has.

`tree` is a fixture: a test module imports it.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from capsule_build.pack import pack
from tests import bundles

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = 1_767_225_600
SBOM = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "version": 1,
    "components": [
        {
            "type": "platform",
            "name": "node",
            "version": "24.19.0",
            "licenses": [{"license": {"id": "MIT"}}],
        },
        {"type": "library", "name": "musl", "version": "1.2.5", "licenses": [{"expression": "MIT"}]},
    ],
}


def contract_tree(folder: Path, *, zeros: int = 1 << 20) -> Path:
    """A tree that keeps the contract, with the kinds of names and contents that a capsule has."""
    for entry in bundles.small_bundle().members:
        path = folder / entry.name.decode().rstrip("/")
        if entry.type == b"5":
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.content)
            path.chmod(int(entry.mode.rstrip(b"\0"), 8))
    # In place of the SBOM that other tests need: the bytes below are the packer's affair alone.
    (folder / "share" / "sbom.cdx.json").write_text(json.dumps(SBOM))
    (folder / "bin" / "again").symlink_to("node")
    (folder / "empty").mkdir()
    (folder / "share" / ("long-" * 30)).mkdir()
    (folder / "share" / ("long-" * 30) / ("name-" * 30)).write_bytes(b"far down")
    (folder / "share" / "früh").write_bytes("é".encode())
    (folder / "share" / "zeros").write_bytes(bytes(zeros))
    (folder / "share" / "block").write_bytes(b"x" * 512)
    (folder / "share" / "nothing").write_bytes(b"")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return contract_tree(tmp_path / "tree")


def packed(tree: Path, **options: int) -> bytes:
    out = io.BytesIO()
    pack(tree, out, epoch=options.get("epoch", EPOCH))
    return out.getvalue()
