"""Verifying keyless signatures, offline, against a trusted root that the caller named.

sigstore checks certificate, log entry, timestamps and signature. What it leaves to its caller is done here:
the bundle's version and kind, the issuer in both of its forms, every timestamp, the payload's type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sigstore.hashes import Hashed
from sigstore.models import Bundle
from sigstore.verify.policy import AllOf, Identity, OIDCIssuerV2
from sigstore_models.common.v1 import HashAlgorithm

from ..runtime.errors import SignatureError, UsageError
from .envelopes import PAYLOAD_TYPE, parse_envelope, signature_of_file, signed_with_key
from .trust import verifier_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sigstore.models import TrustedRoot

_MAX_WORDS: Final = 300


class KeylessVerifier:
    """Verifies what an identity signed.

    Args:
        root: Whose certificates, logs and timestamps count.
        identity: The certificate's identity.
        issuer: The OIDC issuer that vouched for it.

    Raises:
        UsageError: One of the two is empty, which would accept any.
        ContractError: The root can't be used.
    """

    def __init__(self, root: TrustedRoot, identity: str, issuer: str) -> None:
        if not identity or not issuer:
            raise UsageError(
                "A keyless signature is verified for an identity and an issuer: both are needed."
            )
        self.identity = f"{identity} ({issuer})"
        self._policy = AllOf([Identity(identity=identity, issuer=issuer), OIDCIssuerV2(issuer)])
        self._verifier = verifier_of(root)

    def verify_artifact(self, envelope: bytes, sha256: str, name: str) -> datetime:
        """Verify the signature of a file, and return when it was made.

        Args:
            envelope: The Sigstore bundle.
            sha256: The file's digest, as its bytes have it now.
            name: The Sigstore bundle's name, for messages.

        Raises:
            SignatureError: It doesn't hold.
        """
        signature_of_file(parse_envelope(envelope, name), sha256, name)
        bundle = self._open(envelope, name)
        hashed = Hashed(algorithm=HashAlgorithm.SHA2_256, digest=bytes.fromhex(sha256))
        _held(name, lambda: self._verifier.verify_artifact(hashed, bundle, self._policy))
        return self._times(bundle, name)

    def verify_statement(self, envelope: bytes, name: str) -> bytes:
        """Verify a signed statement, and return its bytes.

        Raises:
            SignatureError: It doesn't hold.
        """
        if parse_envelope(envelope, name).dsse_envelope is None:
            raise SignatureError(f"{name} signs a file, not a statement.")
        bundle = self._open(envelope, name)
        results: list[tuple[str, bytes]] = []
        _held(name, lambda: results.append(self._verifier.verify_dsse(bundle, self._policy)))
        ((kind, payload),) = results
        if kind != PAYLOAD_TYPE:
            raise SignatureError(f"{name} signs something of the type {kind!a}.")
        self._times(bundle, name)
        return payload

    def _open(self, envelope: bytes, name: str) -> Bundle:
        if signed_with_key(parse_envelope(envelope, name)):
            raise SignatureError(
                f"{name} is signed with a key, and a keyless signature is asked for.",
                hint="Verify it with --public-key.",
            )
        results: list[Bundle] = []
        _held(name, lambda: results.append(Bundle.from_json(envelope)))
        return results[0]

    def _times(self, bundle: Bundle, name: str) -> datetime:
        """Return when a bundle was signed, by the earliest of its witnesses.

        sigstore is content with one that holds; here each that is there must.
        """
        data = bundle.verification_material.timestamp_verification_data
        for timestamp in data.rfc3161_timestamps if data else ():
            if self._verifier._verify_signed_timestamp(timestamp, bundle.signature) is None:  # noqa: SLF001
                raise SignatureError(f"{name} has a timestamp that doesn't hold.")
        return min(result.time for result in self._verifier._establish_time(bundle))  # noqa: SLF001


def _held(name: str, check: Callable[[], object]) -> None:
    """Run one of sigstore's checks; whatever goes wrong in it, the signature doesn't hold."""
    try:
        check()
    except Exception as error:  # what it reads is a stranger's: any failure is one of the signature
        words = " ".join(str(error).split())[:_MAX_WORDS] or type(error).__name__
        raise SignatureError(f"{name} doesn't hold: {words}") from error
