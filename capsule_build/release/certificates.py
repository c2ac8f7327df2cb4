"""What a signing certificate says of its holder.

Format: Fulcio's certificates, as docs/oid-info.md of its sources has them: the identity is the subject
alternative name, the issuer an extension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509

from ..runtime.errors import SignatureError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_ISSUER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")


def identity_of(certificate: Certificate) -> tuple[str, str]:
    """Return a certificate's identity and its issuer, as it says them.

    Raises:
        SignatureError: It doesn't say both.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        issuer = certificate.extensions.get_extension_for_oid(_ISSUER).value
    except (x509.ExtensionNotFound, ValueError) as error:
        raise SignatureError(f"The signing certificate says no identity or issuer: {error}") from error
    kinds = (x509.UniformResourceIdentifier, x509.RFC822Name)
    identities = [name.value for name in names if isinstance(name, kinds)]
    if len(identities) != 1 or not isinstance(issuer, x509.UnrecognizedExtension):
        raise SignatureError("The signing certificate doesn't say exactly one identity.")
    return identities[0], issuer.value.decode("utf-8", "replace")
