"""Small bundles with all that a build lays beside them, made without a build."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from capsule_build.record import SCHEMA_VERSION
from capsule_build.release.outputs import Outputs, digest_line
from capsule_build.release.provenance import make_provenance
from capsule_build.sbom.checks import check_document
from capsule_build.sbom.writing import read_document
from tests import bundles

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TAG = "node24-v1"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def record(name: str, data: bytes, document: dict[str, Any], tag: str, **changes: Any) -> dict[str, Any]:
    """The build record of a bundle. `overrides` in the changes marks the one input, `node`, too."""
    platform = document["platform"]
    digest = "ab" * 32
    overridden = "node" in changes.get("overrides", ())
    pin = {"kind": "pypi", "package": "node", "version": "24.19.0", "file": "node.whl", "locator": ""}
    return {
        "schema_version": SCHEMA_VERSION,
        "bundle": {"filename": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)},
        "capsule": {
            "runtime": document["runtime"],
            "tag": tag,
            "platform": f"linux-{platform['architecture']}-{platform['libc']}",
            "install_root": document["install_root"],
        },
        "asked": {
            "recipe": document["runtime"]["id"],
            "libc": platform["libc"],
            "architecture": platform["architecture"],
            "versions": {},
            "sources": ["node"] if overridden else [],
            "epoch": None,
        },
        "epoch": bundles.MTIME,
        "inputs": [
            {
                "name": "node",
                "component": "node",
                "role": "runtime",
                "version": "24.19.0",
                "origin": "source" if overridden else "pin",
                "reference": None if overridden else "pypi:node==24.19.0",
                "pin": None if overridden else {"target": "x86_64", **pin},
                "file": "node.whl",
                "sha256": digest,
                "size": 7,
                "license": "MIT",
            }
        ],
        "overrides": [],
        "definitions": {
            **dict.fromkeys(("recipe", "components", "pins", "dockerfile"), f"sha256:{digest}"),
            **dict.fromkeys(("templates", "native", "code"), f"dirHash:{digest}"),
        },
        "source": {"commit": COMMIT, "modified": False, "repository": None},
        "builder": {
            "id": "urn:agentcompass:capsule-build:builder:local",
            "invocation": None,
            "started": "2026-11-29T12:00:00Z",
            "finished": "2026-11-29T12:00:20Z",
            "capsule_build": "0.1.0",
            "python": "3.11.2",
            "zlib_ng": "1.1.0",
            "engine": {"name": "docker", "client": "7.1.0", "server": "20.10.24"},
        },
        **changes,
    }


def lay(
    dist: Path,
    libc: str = "musl",
    *,
    tag: str = TAG,
    version: str = "24.19.0",
    note: bytes = b"",
    name: str | None = None,
    **changes: Any,
) -> tuple[Path, str]:
    """Lay a bundle, with what a build lays beside it, into a folder; return its path and digest.

    Args:
        dist: The folder.
        libc: The libc of its platform.
        tag: Its tag.
        version: Its Node.js's version.
        note: Bytes that make it another one.
        name: Its file name, where that isn't the tag's.
        changes: Changes to its record, from which its provenance is made.
    """
    platform = f"linux-x86_64-{libc}"
    document = bundles.manifest(
        runtime={"id": "node24", "version": version},
        platform={"os": "linux", "architecture": "x86_64", "libc": libc},
        install_root=f"/tmp/agentcompass-capsules/node24-{version}-{platform}",
    )
    data = bundles.small_bundle(document=document).add(bundles.file("share/zz-note", note)).listed().data()
    outputs = Outputs(dist / (name or f"{tag}-{platform}.tar.gz"))
    written = json.dumps(record(outputs.bundle.name, data, document, tag, **changes)).encode()
    digest = hashlib.sha256(data).hexdigest()
    outputs.bundle.write_bytes(data)
    outputs.record.write_bytes(written)
    outputs.provenance.write_bytes(make_provenance(written))
    outputs.digest.write_bytes(digest_line(digest, outputs.bundle.name))
    return outputs.bundle, digest


def without_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't hold SBOMs against their schema, which takes seconds and is what other tests do."""
    for module in ("signing", "documents"):
        monkeypatch.setattr(
            f"capsule_build.release.{module}.check_sbom", lambda data: check_document(read_document(data))
        )


def write_keys(folder: Path) -> tuple[Path, Path]:
    """Make a key to sign with; return the files of its private and its public half."""
    private = ec.generate_private_key(ec.SECP256R1())
    key, public_key = folder / "key.pem", folder / "public.pem"
    pem = serialization.Encoding.PEM
    key.write_bytes(
        private.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public_key.write_bytes(
        private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return key, public_key
