"""Whether an SBOM tells the truth about an unpacked bundle."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from capsule_build.sbom import FILE_NAME, check_sbom

if TYPE_CHECKING:
    from pathlib import Path

LICENCES: Final = "share/licenses"


def check_true(sbom: bytes, tree: Path) -> None:
    """Fail unless an SBOM is valid, and lists each regular file of a tree once, with its digest."""
    check_sbom(sbom)
    document = json.loads(sbom)
    listed = [
        (item["name"], item["hashes"])
        for component in (document["metadata"]["component"], *document["components"])
        for item in component.get("components", [])
        if item["type"] == "file"
    ]
    there = {
        path.relative_to(tree).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in tree.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    del there[FILE_NAME]
    assert len(listed) == len(there)
    assert dict(listed) == {name: [{"alg": "SHA-256", "content": digest}] for name, digest in there.items()}
