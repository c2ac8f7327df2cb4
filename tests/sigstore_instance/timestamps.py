"""The timestamp authority: RFC 3161 responses, which are CMS signed data (RFC 5652)."""

from __future__ import annotations

import datetime
import hashlib

from cryptography.hazmat.primitives.serialization import Encoding

from tests.sigstore_instance import der
from tests.sigstore_instance.authority import Authority
from tests.sigstore_instance.keys import LogKey

_SHA256 = der.sequence(der.oid("2.16.840.1.101.3.4.2.1"))
_ECDSA_SHA256 = der.sequence(der.oid("1.2.840.10045.4.3.2"))
_SIGNED_DATA = der.oid("1.2.840.113549.1.7.2")
_TST_INFO = der.oid("1.2.840.113549.1.9.16.1.4")
_POLICY = der.oid("1.3.6.1.4.1.57264.2")


class Timestamps:
    """Says when it saw a signature."""

    def __init__(self) -> None:
        self._authority = Authority("timestamp authority")
        self._key = LogKey()
        self._certificate = self._authority.timestamping_certificate(self._key.private.public_key())
        self._serial = 0

    def described(self, url: str) -> dict[str, object]:
        return self._authority.described(url, self._certificate)

    def answer(self, request: bytes, now: float) -> bytes:
        """Answer a request: the same imprint and nonce, the time, a signature."""
        ((_, body, _),) = der.read(request)
        fields = der.read(body)
        imprint = fields[1][2]
        nonce = b"".join(whole for tag, _, whole in fields[2:] if tag == 0x02)
        self._serial += 1
        time = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y%m%d%H%M%SZ").encode()
        info = der.sequence(
            der.integer(1), _POLICY, imprint, der.integer(self._serial), der.tlv(0x18, time), nonce
        )
        return der.sequence(der.sequence(der.integer(0)), self._signed(info))

    def _signed(self, info: bytes) -> bytes:
        certificate = self._certificate.public_bytes(Encoding.DER)
        known_by = der.sequence(der.sequence(der.sequence(der.octets(hashlib.sha256(certificate).digest()))))
        attributes = [
            der.sequence(der.oid("1.2.840.113549.1.9.3"), der.set_of(_TST_INFO)),
            der.sequence(
                der.oid("1.2.840.113549.1.9.4"), der.set_of(der.octets(hashlib.sha256(info).digest()))
            ),
            der.sequence(der.oid("1.2.840.113549.1.9.16.2.47"), der.set_of(known_by)),
        ]
        # Signed as a set, sent under a tag of its own.
        signature = self._key.sign(der.set_of(*attributes))
        signer = der.sequence(
            der.integer(1),
            der.sequence(
                self._certificate.issuer.public_bytes(), der.integer(self._certificate.serial_number)
            ),
            _SHA256,
            der.tagged(0, *sorted(attributes)),
            _ECDSA_SHA256,
            der.octets(signature),
        )
        data = der.sequence(
            der.integer(3),
            der.set_of(_SHA256),
            der.sequence(_TST_INFO, der.tagged(0, der.octets(info))),
            der.tagged(0, certificate),
            der.set_of(signer),
        )
        return der.sequence(_SIGNED_DATA, der.tagged(0, data))
