"""Releases that can be signed: what `releases.lay` lays, and the SBOM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from capsule_build.release.outputs import Outputs
from capsule_build.runtime.archive import open_bundle
from capsule_build.sbom import outer_sbom
from tests import releases

if TYPE_CHECKING:
    from pathlib import Path


def write_release(folder: Path, libc: str = "musl", **changes: Any) -> Path:
    """Write a bundle, its digest, SBOM and provenance, and return the bundle's path."""
    bundle, sha256 = releases.lay(folder, libc, **changes)
    with open_bundle(bundle) as reader:
        for _ in reader:
            pass
        inner = json.dumps(reader.sbom).encode()
    size = bundle.stat().st_size
    Outputs(bundle).sbom.write_bytes(outer_sbom(inner, filename=bundle.name, sha256=sha256, size=size))
    return bundle
