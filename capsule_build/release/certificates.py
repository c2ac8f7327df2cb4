"""What a signing certificate says of its holder, for people: what counts is checked by its verification.

Format: Fulcio's certificates, as docs/oid-info.md of its sources has them: the identity is the subject
alternative name, the issuer an extension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_ISSUER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_UNKNOWN: Final = "unknown"


def holder_of(certificate: Certificate) -> str:
    """Return a certificate's identity and issuer as it says them: `you@example.org (https://issuer.example)`."""
    return f"{_identity(certificate)} ({_issuer(certificate)})"


def _identity(certificate: Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return _UNKNOWN
    # A user name without a domain is a name of another kind, whose value is a text with its type and length.
    shown = [
        name.value[2:].decode("utf-8", "replace") if isinstance(name, x509.OtherName) else str(name.value)
        for name in names
    ]
    return ", ".join(shown) or _UNKNOWN


def _issuer(certificate: Certificate) -> str:
    try:
        issuer = certificate.extensions.get_extension_for_oid(_ISSUER).value
    except (x509.ExtensionNotFound, ValueError):
        return _UNKNOWN
    return (
        issuer.value.decode("utf-8", "replace")
        if isinstance(issuer, x509.UnrecognizedExtension)
        else _UNKNOWN
    )
