"""What must agree in a task bundle: the packed file, its provenance, its SBOM."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..runtime.errors import SignatureError
from ..sandbox.artifact import read_artifact
from ..sbom import check_task_sbom
from .task_provenance import Found, GuestFacts, TaskFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..sandbox.artifact import Artifact
    from .outputs import Outputs
    from .task_provenance import TaskProvenance


def facts_of(artifact: Artifact) -> Found:
    """Return what a provenance says of a packed file."""
    return Found(
        task=TaskFacts(
            entry=artifact.file.entry,
            tasks=tuple(artifact.file.tasks),
            version=artifact.version,
            policy_sha256=artifact.policy_sha256,
        ),
        guest=GuestFacts.model_validate(artifact.guest._asdict()),
    )


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each file, in hexadecimal."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def check_task(outputs: Outputs, data: bytes, provenance: TaskProvenance, sbom: bytes | None) -> Artifact:
    """Read a packed file, and hold what lies beside it against it.

    Args:
        outputs: The bundle, for its names.
        data: Its bytes.
        provenance: Its provenance, which is known to be about these bytes.
        sbom: Its SBOM; `None`: that isn't asked.

    Returns:
        What the file holds.

    Raises:
        ContractError: The packed file isn't one, or the SBOM is about something else.
        SignatureError: The provenance says something else than the file.
    """
    artifact = read_artifact(data, str(outputs.bundle))
    name = outputs.bundle.name
    pairs = [
        ("the source's name", artifact.file.path, provenance.asked.file),
        ("what it is", facts_of(artifact), provenance.found),
    ]
    if artifact.contents:
        pairs.append(("the files in it", digests(artifact.contents), dict(provenance.inputs)))
    for what, inside, said in pairs:
        if inside != said:
            raise SignatureError(f"{outputs.provenance.name} and {name} don't agree about {what}.")
    if sbom is not None:
        check_task_sbom(sbom, hashlib.sha256(data).hexdigest(), provenance.inputs)
    return artifact
