"""Verifies a task bundle: who signed it, what it was packed from, what is in it.

Its bytes are read once, and given on: what was verified is what is run, whatever lies under its name by then.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..sandbox.artifact import read_artifact_bytes
from .documents import require_digest, verify_documents
from .outputs import Outputs
from .policy import VerifiedTask
from .task_contract import check_task
from .task_provenance import read_task_provenance

if TYPE_CHECKING:
    from pathlib import Path

    from .policy import Policy


def verify_task_file(bundle: Path, policy: Policy) -> VerifiedTask:
    """Verify a task bundle with everything that lies beside it.

    Args:
        bundle: The bundle.
        policy: Whose signatures are asked for.

    Raises:
        CapsuleError: As `verify_task`; or the bundle can't be read.
    """
    return verify_task(bundle, read_artifact_bytes(str(bundle)), policy)


def verify_task(bundle: Path, data: bytes, policy: Policy) -> VerifiedTask:
    """Verify the bytes of a task bundle with everything that lies beside it, without any network.

    Args:
        bundle: Where they were read from: the rest lies beside it.
        data: The bundle's bytes.
        policy: Whose signatures are asked for.

    Raises:
        UsageError: A file of the policy can't be read.
        SignatureError: A signature, an identity or a statement doesn't hold, or isn't there.
        ContractError: The bundle, or a document that is signed, breaks its contract.
    """
    outputs = Outputs(bundle)
    sha256 = hashlib.sha256(data).hexdigest()
    documents = verify_documents(outputs, sha256, policy, read_task_provenance)
    artifact = check_task(outputs, data, documents.provenance, documents.sbom)
    require_digest(outputs, sha256)
    return VerifiedTask(bundle, artifact, documents.provenance, documents.signer, documents.signed_at)
