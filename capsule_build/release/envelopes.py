"""Sigstore bundles as files: read strictly, and told apart by what they were signed with.

Format: sigstore's protobuf-specs, `application/vnd.dev.sigstore.bundle.v0.3+json`. Only this version is
written and read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from sigstore_models.bundle.v1 import Bundle

from ..runtime.errors import SignatureError
from ..runtime.regular import read_regular
from ..runtime.strict_json import JsonError, loads_object

if TYPE_CHECKING:
    from pathlib import Path

    from sigstore_models.common.v1 import MessageSignature

MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_MAX_BYTES: Final = 64 << 20
"""An SBOM statement holds the whole SBOM, in base64."""


def read_beside(path: Path, what: str) -> bytes:
    """Return the bytes of a file of a release. It may be anybody's: what isn't a file isn't waited for.

    Args:
        path: The file.
        what: The file in the words of messages, as `The signature x.sigstore.json`.

    Raises:
        SignatureError: It isn't there, can't be read, or is no size for one.
    """
    hint = "It is a part of the release, and lies beside the bundle."
    try:
        return read_regular(path, limit=_MAX_BYTES)
    except FileNotFoundError:
        raise SignatureError(f"{what} isn't there.", hint=hint) from None
    except OSError as error:
        raise SignatureError(f"{what} can't be read: {error.strerror}.", hint=hint) from error


def parse_envelope(data: bytes, name: str) -> Bundle:
    """Read a Sigstore bundle; nothing in it is verified by that.

    Args:
        data: Its bytes.
        name: Its file's name, for messages.

    Raises:
        SignatureError: It isn't one.
    """
    try:
        loads_object(data)
        bundle = Bundle.from_json(data)
    except JsonError as error:
        raise SignatureError(f"{name} isn't a Sigstore bundle: {error}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SignatureError(f"{name} isn't a valid Sigstore bundle: {where}: {first['msg']}.") from error
    if bundle.media_type != MEDIA_TYPE:
        raise SignatureError(f"{name} is a Sigstore bundle of another version: {bundle.media_type}.")
    return bundle


def signed_with_key(bundle: Bundle) -> bool:
    """Return whether a bundle names a public key, and not a certificate."""
    return bundle.verification_material.public_key is not None


def signature_of_file(bundle: Bundle, sha256: str, name: str) -> MessageSignature:
    """Return the signature in a bundle, which must name a file's digest. Nothing is verified by that.

    Args:
        bundle: The Sigstore bundle.
        sha256: The file's digest, as its bytes have it now.
        name: The Sigstore bundle's name, for messages.

    Raises:
        SignatureError: It isn't.
    """
    signature = bundle.message_signature
    if signature is None:
        raise SignatureError(f"{name} signs a statement, not a file.")
    if signature.message_digest is None or signature.message_digest.digest != bytes.fromhex(sha256):
        raise SignatureError(f"{name} is the signature of another file, or the file was changed.")
    return signature
