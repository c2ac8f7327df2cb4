"""Signing with a local key, for those without OIDC: ECDSA over P-256 with SHA-256.

What is written is a Sigstore bundle with a public key's hint in the certificate's place, over the same bytes
as a keyless one. There is no log and no timestamp: a key in a thief's hands can't be told from its owner's.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from sigstore_models.bundle.v1 import Bundle, VerificationMaterial
from sigstore_models.common.v1 import HashAlgorithm, HashOutput, MessageSignature, PublicKeyIdentifier
from sigstore_models.intoto import Envelope, Signature

from ..runtime.errors import SignatureError, UsageError
from ..runtime.files import sha256_file
from .envelopes import MEDIA_TYPE, PAYLOAD_TYPE, parse_envelope, signature_of_file, signed_with_key

if TYPE_CHECKING:
    from pathlib import Path

_PUBLIC: Final = b"-----BEGIN PUBLIC KEY-----"
_ENCRYPTED: Final = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")
PASSWORD_VARIABLE: Final = "CAPSULE_KEY_PASSWORD"  # noqa: S105 - the name of a variable
_ALGORITHM: Final = ec.ECDSA(hashes.SHA256())
_PREHASHED: Final = ec.ECDSA(utils.Prehashed(hashes.SHA256()))


class KeySigner:
    """Signs with a private key (see `signer.Signer`)."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._hint = hint_of(key.public_key())

    @property
    def identity(self) -> str:
        """The key's hint."""
        return f"key {self._hint}"

    def sign_artifact(self, path: Path) -> bytes:
        """Sign a file's SHA-256."""
        digest = bytes.fromhex(sha256_file(path))
        return self._bundle(
            message_signature=MessageSignature(
                message_digest=HashOutput(algorithm=HashAlgorithm.SHA2_256, digest=base64.b64encode(digest)),
                signature=base64.b64encode(self._key.sign(digest, _PREHASHED)),
            )
        )

    def sign_statement(self, data: bytes) -> bytes:
        """Sign an in-toto statement, exactly these bytes, in a DSSE envelope."""
        signature = self._key.sign(encoding(data), _ALGORITHM)
        return self._bundle(
            dsse_envelope=Envelope(
                payload=base64.b64encode(data),
                payload_type=PAYLOAD_TYPE,
                signatures=[Signature(sig=base64.b64encode(signature))],
            )
        )

    def _bundle(
        self, *, message_signature: MessageSignature | None = None, dsse_envelope: Envelope | None = None
    ) -> bytes:
        content = (
            {"dsse_envelope": dsse_envelope}
            if message_signature is None
            else {"message_signature": message_signature}
        )
        bundle = Bundle(
            media_type=MEDIA_TYPE,
            verification_material=VerificationMaterial(
                public_key=PublicKeyIdentifier(hint=self._hint), tlog_entries=[]
            ),
            **content,
        )
        return bundle.to_json().encode() + b"\n"


class KeyVerifier:
    """Verifies what a key signed. The key is the caller's; the hint in a file only explains a mismatch."""

    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self._key = key
        self._hint = hint_of(key)

    @property
    def identity(self) -> str:
        """The key's hint."""
        return f"key {self._hint}"

    def verify_artifact(self, envelope: bytes, sha256: str, name: str) -> None:
        """Verify the signature of a file. Nobody witnessed when it was made.

        Args:
            envelope: The Sigstore bundle.
            sha256: The file's digest, as its bytes have it now.
            name: The Sigstore bundle's name, for messages.

        Raises:
            SignatureError: It doesn't hold.
        """
        signature = signature_of_file(self._open(envelope, name), sha256, name)
        self._verify(signature.signature, bytes.fromhex(sha256), _PREHASHED, name)

    def verify_statement(self, envelope: bytes, name: str) -> bytes:
        """Verify a signed statement, and return its bytes.

        Raises:
            SignatureError: It doesn't hold.
        """
        signed = self._open(envelope, name).dsse_envelope
        if signed is None:
            raise SignatureError(f"{name} signs a file, not a statement.")
        if signed.payload_type != PAYLOAD_TYPE:
            raise SignatureError(f"{name} signs something of the type {signed.payload_type!a}.")
        if len(signed.signatures) != 1:
            raise SignatureError(f"{name} has {len(signed.signatures)} signatures; one is wanted.")
        self._verify(signed.signatures[0].sig, encoding(signed.payload), _ALGORITHM, name)
        return signed.payload

    def _open(self, envelope: bytes, name: str) -> Bundle:
        bundle = parse_envelope(envelope, name)
        if not signed_with_key(bundle):
            raise SignatureError(
                f"{name} is a keyless signature, and one of a key is asked for.",
                hint="Verify it with --identity and --issuer.",
            )
        key = bundle.verification_material.public_key
        if key is not None and key.hint != self._hint:
            raise SignatureError(f"{name} is of another key: its hint is {key.hint!a}, not {self._hint!a}.")
        return bundle

    def _verify(self, signature: bytes, data: bytes, algorithm: ec.ECDSA, name: str) -> None:
        try:
            self._key.verify(signature, data, algorithm)
        except InvalidSignature:
            raise SignatureError(f"The signature in {name} isn't the key's for this content.") from None


def encoding(payload: bytes) -> bytes:
    """Return what is signed of a statement: DSSE v1's pre-authentication encoding of it and its type."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def hint_of(key: ec.EllipticCurvePublicKey) -> str:
    """Return what a key is known by: the SHA-256 of its DER form (SubjectPublicKeyInfo), in base64."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def load_private_key(path: Path) -> KeySigner:
    """Read a private key: PEM, PKCS#8 or SEC 1; one with a password takes it from `CAPSULE_KEY_PASSWORD`.

    Raises:
        UsageError: It can't be read, or is no ECDSA P-256 key. The message holds nothing of the key.
    """
    password, data = os.environ.get(PASSWORD_VARIABLE), _bytes(path)
    try:
        key = serialization.load_pem_private_key(data, password.encode() if password else None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise _not_opened(path, data, password, takes_other=isinstance(error, TypeError)) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"The private key {path} isn't an ECDSA key on the curve P-256.")
    return KeySigner(key)


def _not_opened(path: Path, data: bytes, password: str | None, *, takes_other: bool) -> UsageError:
    """Return the error for what isn't a private key, or is none that the password opens.

    Args:
        path: The file.
        data: What it holds, of which nothing is said.
        password: What was given.
        takes_other: Whether it is a key that wants a password and got none, or the reverse.
    """
    if _PUBLIC in data:
        return UsageError(f"{path} is a public key, and signing takes the private one.")
    if password and takes_other:
        return UsageError(
            f"The private key {path} has no password, and {PASSWORD_VARIABLE} gives one.",
            hint=f"Unset {PASSWORD_VARIABLE}.",
        )
    if takes_other or any(mark in data for mark in _ENCRYPTED):
        known = f"{PASSWORD_VARIABLE} isn't it" if password else f"{PASSWORD_VARIABLE} gives none"
        return UsageError(
            f"The private key {path} has a password, and {known}.", hint=f"Set {PASSWORD_VARIABLE} to it."
        )
    return UsageError(
        f"{path} isn't a PEM private key.",
        hint="Make one: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem",
    )


def load_public_key(path: Path) -> KeyVerifier:
    """Read a public key: PEM, SubjectPublicKeyInfo.

    Raises:
        UsageError: It can't be read, or is no ECDSA P-256 key.
    """
    try:
        key = serialization.load_pem_public_key(_bytes(path))
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(
            f"The public key {path} isn't a PEM public key.",
            hint="Take it from the private one: openssl pkey -in key.pem -pubout -out key.pub.pem",
        ) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise UsageError(f"The public key {path} isn't an ECDSA key on the curve P-256.")
    return KeyVerifier(key)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"The key {path} can't be read: {error.strerror}.") from error
