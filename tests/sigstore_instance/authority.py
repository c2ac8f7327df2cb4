"""Certificates: Fulcio's authority with its CT log, and the timestamp authority's.

Formats: RFC 5280; signed certificate timestamps as RFC 6962, 3.2 and 3.3, has them; Fulcio's extensions.
"""

from __future__ import annotations

import datetime
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.sigstore_instance import der
from tests.sigstore_instance.keys import START, LogKey, b64

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

ISSUER_V1 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
ISSUER_V2 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
USER_NAME = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7")
SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_BEFORE = datetime.timedelta(minutes=5)
"""How long certificates were valid before they were made: clocks differ, and tests may be slow."""
_END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


@dataclass
class Habits:
    """How Fulcio makes certificates; a test changes them.

    Attributes:
        seconds: How long a certificate is valid.
        sct: `good`; `missing`; or `rogue`, of a log that nobody knows.
        issuers: Which of the two issuer extensions a certificate has.
    """

    seconds: float = 600
    sct: str = "good"
    issuers: tuple[x509.ObjectIdentifier, ...] = (ISSUER_V1, ISSUER_V2)


class Authority:
    """A self-signed authority."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            _builder(self.name, self.name, self.key.public_key(), START, _END)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def described(self, url: str, *leaves: x509.Certificate) -> dict[str, object]:
        """The authority as a trusted root has it."""
        chain = [*leaves, self.certificate]
        return {
            "subject": {"organization": "tests", "commonName": "tests"},
            "uri": url,
            "certChain": {
                "certificates": [
                    {"rawBytes": b64(item.public_bytes(serialization.Encoding.DER))} for item in chain
                ]
            },
            "validFor": {"start": START.strftime("%Y-%m-%dT%H:%M:%SZ")},
        }

    def timestamping_certificate(self, key: CertificatePublicKeyTypes) -> x509.Certificate:
        """A certificate of a timestamp authority (RFC 3161, 2.3)."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "timestamps")])
        return (
            _builder(subject, self.name, key, START, _END)
            .add_extension(_usage(), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )

    def signing_certificate(
        self, key: CertificatePublicKeyTypes, identity: str, issuer: str, log: LogKey, habits: Habits
    ) -> x509.Certificate:
        """A short-lived certificate for an identity, as Fulcio gives it, with the CT log's promise in it."""
        now = datetime.datetime.now(datetime.UTC)
        ends = now + datetime.timedelta(seconds=habits.seconds)
        builder = (
            _builder(x509.Name([]), self.name, key, now - _BEFORE, ends)
            .add_extension(_usage(), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([_name(identity)]), critical=True)
        )
        values = {ISSUER_V1: issuer.encode(), ISSUER_V2: der.utf8(issuer)}
        for oid in habits.issuers:
            builder = builder.add_extension(x509.UnrecognizedExtension(oid, values[oid]), critical=False)
        precertificate = builder.sign(self.key, hashes.SHA256())
        if habits.sct == "missing":
            return precertificate
        # What the log signs is the certificate without its promise: the same but for the last extension.
        promise = self._promise(precertificate, LogKey() if habits.sct == "rogue" else log, now)
        return builder.add_extension(
            x509.UnrecognizedExtension(SCT_LIST, der.octets(promise)), critical=False
        ).sign(self.key, hashes.SHA256())

    def _promise(self, precertificate: x509.Certificate, log: LogKey, now: datetime.datetime) -> bytes:
        """A list of one signed certificate timestamp, in TLS's presentation language."""
        issuer = LogKey()
        issuer.private = self.key
        body = precertificate.tbs_certificate_bytes
        time = int(now.timestamp() * 1000)
        signed = (
            struct.pack(">BBQH", 0, 0, time, 1)
            + issuer.id
            + struct.pack(">I", len(body))[1:]
            + body
            + struct.pack(">H", 0)
        )
        signature = log.sign(signed)
        sct = struct.pack(">B32sQHBBH", 0, log.id, time, 0, 4, 3, len(signature)) + signature
        return struct.pack(">HH", len(sct) + 2, len(sct)) + sct


def _name(identity: str) -> x509.GeneralName:
    """An identity as Fulcio writes it: a URI, an address, or a user's name."""
    if ":" in identity:
        return x509.UniformResourceIdentifier(identity)
    if "@" in identity:
        return x509.RFC822Name(identity)
    return x509.OtherName(USER_NAME, der.utf8(identity))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificatePublicKeyTypes,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _usage(*, certificates: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )
