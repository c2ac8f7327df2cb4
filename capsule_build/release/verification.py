"""Verifies a released bundle: who signed it, what it was made of, what is in it.

Signatures come first: nothing of a bundle is unpacked, and no statement believed, before its signature holds.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from ..builder import LOCAL_BUILDER
from ..runtime.archive import Kind, open_bundle
from ..runtime.errors import ContractError, SignatureError
from ..runtime.files import CHUNK_BYTES, sha256_file
from ..runtime.reader import SBOM_NAME
from ..runtime.strict_json import JsonError, loads_object
from ..sbom import check_files, check_sbom, outer_sbom
from .envelopes import read_envelope
from .keyless_verifying import KeylessVerifier
from .keys import load_public_key
from .outputs import Outputs, digest_line, require_bundle
from .policy import KeyPolicy, Verified
from .provenance import read_provenance
from .signing import SBOM_PREDICATE_TYPE
from .statements import read_statement
from .trust import load_trusted_root

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ..runtime.archive import BundleInfo
    from .policy import Policy
    from .provenance import Provenance


class _Verifier(Protocol):
    @property
    def identity(self) -> str: ...

    def verify_artifact(self, envelope: bytes, sha256: str, name: str) -> datetime | None: ...

    def verify_statement(self, envelope: bytes, name: str) -> bytes: ...


def verify_release(bundle: Path, policy: Policy) -> Verified:
    """Verify a bundle with everything that lies beside it, without any network.

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
    verifier = _verifier(policy)
    outputs = Outputs(bundle)
    sha256 = sha256_file(bundle)
    signature = read_envelope(outputs.signature)
    signed_at = verifier.verify_artifact(signature, sha256, outputs.signature.name)
    provenance = _verify_provenance(outputs, sha256, verifier, _builder(policy))
    sbom = _verify_sbom(outputs, sha256, verifier)
    info, inner = _check_contract(bundle)
    if info.sha256 != sha256:
        raise SignatureError(f"{bundle.name} was changed while it was verified.")
    if _contents(outputs.digest) != digest_line(sha256, bundle.name):
        raise ContractError(f"{outputs.digest.name} isn't the digest of {bundle.name}, {sha256}.")
    if outer_sbom(inner, filename=bundle.name, sha256=sha256, size=info.size) != sbom:
        raise ContractError(f"{outputs.sbom.name} isn't what the SBOM inside {bundle.name} says.")
    _compare(provenance, info, outputs)
    return Verified(bundle, info, provenance, verifier.identity, signed_at)


def _verifier(policy: Policy) -> _Verifier:
    if isinstance(policy, KeyPolicy):
        return load_public_key(policy.public_key)
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


def _verify_provenance(outputs: Outputs, sha256: str, verifier: _Verifier, builder: str) -> Provenance:
    name = outputs.provenance_signature.name
    payload = verifier.verify_statement(read_envelope(outputs.provenance_signature), name)
    what = f"The provenance in {name}"
    provenance = read_provenance(payload, what)
    provenance.statement.require_subject(outputs.bundle.name, sha256, what)
    if provenance.builder.id != builder:
        raise SignatureError(
            f"{what} names the builder {provenance.builder.id!a}; {builder!a} is wanted.",
            hint="If that builder is to be trusted with this signer, say --builder.",
        )
    if _contents(outputs.provenance) != payload:
        raise SignatureError(f"{outputs.provenance.name} isn't the provenance that {name} signs.")
    return provenance


def _verify_sbom(outputs: Outputs, sha256: str, verifier: _Verifier) -> bytes:
    name = outputs.sbom_signature.name
    what = f"The SBOM statement in {name}"
    statement = read_statement(verifier.verify_statement(read_envelope(outputs.sbom_signature), name), what)
    statement.require_type(SBOM_PREDICATE_TYPE, what)
    statement.require_subject(outputs.bundle.name, sha256, what)
    sbom = _contents(outputs.sbom)
    if _object(sbom, outputs.sbom.name) != statement.predicate:
        raise SignatureError(f"{outputs.sbom.name} isn't the SBOM that {name} signs.")
    check_sbom(sbom)
    return sbom


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


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SignatureError(f"{path.name} isn't there.", hint="It is a part of the release.") from None


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        return loads_object(data)
    except JsonError as error:
        raise ContractError(f"{name} can't be read: {error}.") from error
