"""Sigstore bundles as files: read strictly, and told apart by what they were signed with.

Format: sigstore's protobuf-specs, `application/vnd.dev.sigstore.bundle.v0.3+json`. Only this version is
written and read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from sigstore_models.bundle.v1 import Bundle

from ..runtime.errors import SignatureError
from ..runtime.strict_json import JsonError, loads_object

if TYPE_CHECKING:
    from pathlib import Path

MEDIA_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
_MAX_BYTES: Final = 64 << 20
"""An SBOM statement holds the whole SBOM, in base64."""


def read_envelope(path: Path) -> bytes:
    """Return the bytes of a signature's file.

    Raises:
        SignatureError: It isn't there, or is no size for one.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise SignatureError(
            f"The signature {path.name} isn't there.", hint="It lies beside the bundle that it is of."
        ) from None
    if len(data) > _MAX_BYTES:
        raise SignatureError(f"The signature {path.name} has more than {_MAX_BYTES} bytes.")
    return data


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
