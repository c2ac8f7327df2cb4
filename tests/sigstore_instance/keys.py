"""The instance's keys: ECDSA P-256, known by the SHA-256 of their public part, as logs are."""

from __future__ import annotations

import base64
import datetime
import hashlib

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

START = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
"""Since when the instance's own certificates and keys are valid."""


class LogKey:
    """A log's key."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())

    @property
    def der(self) -> bytes:
        return self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def id(self) -> bytes:
        """The log's ID (RFC 6962, 3.2)."""
        return hashlib.sha256(self.der).digest()

    def sign(self, data: bytes) -> bytes:
        return self.private.sign(data, ec.ECDSA(hashes.SHA256()))

    def described(self, url: str) -> dict[str, object]:
        """The log as a trusted root has it."""
        return {
            "baseUrl": url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": b64(self.der),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": {"start": START.strftime("%Y-%m-%dT%H:%M:%SZ")},
            },
            "logId": {"keyId": b64(self.id)},
        }


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
