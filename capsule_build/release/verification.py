"""Verifies a released bundle: who signed it, what it was made of, what is in it.

Signatures come first: nothing of a bundle is unpacked before its signature holds.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..runtime.archive import Kind, open_bundle
from ..runtime.errors import ContractError, SignatureError, UsageError
from ..runtime.files import CHUNK_BYTES, sha256_file
from ..runtime.reader import SBOM_NAME
from ..sbom import check_files, outer_sbom
from .documents import require_digest, verify_documents
from .outputs import Outputs, is_task, require_bundle
from .policy import Verified
from .provenance import read_provenance
from .task_verification import verify_task_file

if TYPE_CHECKING:
    from pathlib import Path

    from ..runtime.archive import BundleInfo
    from .policy import Policy, VerifiedTask
    from .provenance import Provenance


def verify_release(bundle: Path, policy: Policy) -> Verified | VerifiedTask:
    """Verify a bundle, of a runtime capsule or of tasks, with everything that lies beside it.

    No network is asked.

    Args:
        bundle: The bundle.
        policy: Whose signatures are asked for.

    Returns:
        What holds.

    Raises:
        UsageError: The bundle, or a file of the policy, can't be read.
        SignatureError: A signature, an identity or a statement doesn't hold, or isn't there.
        ContractError: The bundle, or a document that is signed, breaks its contract.
    """
    require_bundle(bundle)
    if is_task(bundle):
        return verify_task_file(bundle, policy)
    outputs = Outputs(bundle)
    try:
        sha256 = sha256_file(bundle)
    except OSError as error:
        raise UsageError(f"The bundle '{bundle}' can't be read: {error.strerror}.") from error
    documents = verify_documents(outputs, sha256, policy, read_provenance)
    info, inner = _check_contract(bundle)
    if info.sha256 != sha256:
        raise SignatureError(f"{bundle.name} was changed while it was verified.")
    require_digest(outputs, sha256)
    if outer_sbom(inner, filename=bundle.name, sha256=sha256, size=info.size) != documents.sbom:
        raise ContractError(f"{outputs.sbom.name} isn't what the SBOM inside {bundle.name} says.")
    _compare(documents.provenance, info, outputs)
    return Verified(bundle, info, documents.provenance, documents.signer, documents.signed_at)


def _check_contract(bundle: Path) -> tuple[BundleInfo, bytes]:
    """Check a bundle's contract and that its SBOM lists its files; return what it is, and the SBOM."""
    inner = b""
    digests: dict[str, str] = {}
    with open_bundle(bundle) as reader:
        for member, content in reader:
            if member.name == SBOM_NAME:
                inner = content.read(member.size)
            elif member.kind is Kind.FILE:
                digest = hashlib.sha256()
                while chunk := content.read(CHUNK_BYTES):
                    digest.update(chunk)
                digests[member.name] = digest.hexdigest()
        check_files(inner, digests)
        return reader.info, inner


def _compare(provenance: Provenance, info: BundleInfo, outputs: Outputs) -> None:
    manifest, capsule = info.manifest, provenance.capsule
    pairs = (
        ("the runtime", manifest.runtime_id, capsule.runtime.id),
        ("the version", manifest.runtime_version, capsule.runtime.version),
        ("the platform", str(manifest.platform), capsule.platform),
        ("the install root", manifest.install_root, capsule.install_root),
    )
    for what, inside, said in pairs:
        if inside != said:
            raise SignatureError(
                f"{outputs.provenance.name} gives {what} as {said!a}, the bundle's manifest as {inside!a}."
            )
