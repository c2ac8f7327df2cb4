"""What is signed beside a bundle, verified: the bundle's signature, its provenance, its SBOM.

Signatures come first: no statement is believed before its signature holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..builder import LOCAL_BUILDER
from ..runtime.errors import ContractError, SignatureError
from ..runtime.strict_json import JsonError, loads_object
from ..sbom import check_sbom
from .envelopes import read_beside
from .keys import load_public_key
from .outputs import digest_line
from .policy import KeyPolicy
from .statements import SBOM_PREDICATE_TYPE, Told, read_statement

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any

    from .outputs import Outputs
    from .policy import Policy


P = TypeVar("P", bound=Told)


@dataclass(frozen=True)
class Documents(Generic[P]):
    """What lies signed beside a bundle.

    Attributes:
        provenance: What it was made of.
        sbom: What is in it: the bytes of the SBOM.
        signer: Who signed, for people.
        signed_at: When, as the log or the timestamp authority saw it; `None` for a key.
    """

    provenance: P
    sbom: bytes
    signer: str
    signed_at: datetime | None


class _Verifier(Protocol):
    @property
    def identity(self) -> str: ...

    def verify_artifact(self, envelope: bytes, sha256: str, name: str) -> datetime | None: ...

    def verify_statement(self, envelope: bytes, name: str) -> bytes: ...


def verify_documents(
    outputs: Outputs, sha256: str, policy: Policy, read: Callable[[bytes, str], P]
) -> Documents[P]:
    """Verify what lies beside a bundle, without any network.

    Args:
        outputs: The bundle, and the names of the rest. The bundle itself isn't opened.
        sha256: The digest of the bundle's bytes.
        policy: Whose signatures are asked for.
        read: Reads the provenance of this kind of bundle; is given its bytes and what messages call it.

    Raises:
        UsageError: A file of the policy can't be read.
        SignatureError: A signature, an identity or a statement doesn't hold, or isn't there.
        ContractError: A document that is signed breaks its format.
    """
    verifier = _verifier(policy)
    signature = read_beside(outputs.signature, f"The signature {outputs.signature.name}")
    signed_at = verifier.verify_artifact(signature, sha256, outputs.signature.name)
    provenance = _verify_provenance(outputs, sha256, verifier, _builder(policy), read)
    sbom = _verify_sbom(outputs, sha256, verifier)
    return Documents(provenance, sbom, verifier.identity, signed_at)


def require_digest(outputs: Outputs, sha256: str) -> None:
    """Check the file with a bundle's digest.

    Raises:
        SignatureError: It isn't there.
        ContractError: It says another one.
    """
    if read_beside(outputs.digest, outputs.digest.name) != digest_line(sha256, outputs.bundle.name):
        raise ContractError(f"{outputs.digest.name} isn't the digest of {outputs.bundle.name}, {sha256}.")


def _verifier(policy: Policy) -> _Verifier:
    if isinstance(policy, KeyPolicy):
        return load_public_key(policy.public_key)
    # A key needs none of sigstore, which takes longer to load than all else here.
    from .keyless_verifying import KeylessVerifier  # noqa: PLC0415
    from .trust import load_trusted_root  # noqa: PLC0415

    return KeylessVerifier(load_trusted_root(policy.trust_root), policy.identity, policy.issuer)


def _builder(policy: Policy) -> str:
    """Return the builder that a provenance must name.

    A workflow signs its own builds: its certificate's identity is its URI, as the builder's is. Whoever else
    signs, signs what was built locally.
    """
    if policy.builder is not None:
        return policy.builder
    if not isinstance(policy, KeyPolicy) and policy.identity.startswith("https://"):
        return policy.identity
    return LOCAL_BUILDER


def _verify_provenance(
    outputs: Outputs, sha256: str, verifier: _Verifier, builder: str, read: Callable[[bytes, str], P]
) -> P:
    name = outputs.provenance_signature.name
    payload = verifier.verify_statement(
        read_beside(outputs.provenance_signature, f"The signature {name}"), name
    )
    what = f"The provenance in {name}"
    provenance = read(payload, what)
    provenance.statement.require_subject(outputs.bundle.name, sha256, what)
    if provenance.builder.id != builder:
        raise SignatureError(
            f"{what} names the builder {provenance.builder.id!a}; {builder!a} is wanted.",
            hint="If that builder is to be trusted with this signer, say --builder.",
        )
    if read_beside(outputs.provenance, outputs.provenance.name) != payload:
        raise SignatureError(f"{outputs.provenance.name} isn't the provenance that {name} signs.")
    return provenance


def _verify_sbom(outputs: Outputs, sha256: str, verifier: _Verifier) -> bytes:
    name = outputs.sbom_signature.name
    what = f"The SBOM statement in {name}"
    statement = read_statement(
        verifier.verify_statement(read_beside(outputs.sbom_signature, f"The signature {name}"), name), what
    )
    statement.require_type(SBOM_PREDICATE_TYPE, what)
    statement.require_subject(outputs.bundle.name, sha256, what)
    sbom = read_beside(outputs.sbom, outputs.sbom.name)
    if _object(sbom, outputs.sbom.name) != statement.predicate:
        raise SignatureError(f"{outputs.sbom.name} isn't the SBOM that {name} signs.")
    check_sbom(sbom)
    return sbom


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        return loads_object(data)
    except JsonError as error:
        raise ContractError(f"{name} can't be read: {error}.") from error
