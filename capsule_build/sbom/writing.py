"""The bytes of a CycloneDX document: the same from the same content, whatever wrote it."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from ..runtime.errors import ContractError
from ..runtime.strict_json import JsonError, loads_object

CAPSULE: Final = "capsule"
"""The name space of the project's own properties."""
TEXTS: Final = "licence-texts"
"""The property that says of a component's licence texts what isn't as it should be."""

NAMESPACE: Final = uuid.UUID("3f3c0a52-5f0c-5b0e-9a43-6d1b8a1f7a10")
"""What serial numbers are derived from."""


def as_bytes(document: dict[str, Any]) -> bytes:
    """Return the one spelling of a document: sorted keys, one line a value, and a final newline."""
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def with_serial_number(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the serial number that follows from all the rest of it (a UUID of version 5)."""
    rest = {key: value for key, value in document.items() if key != "serialNumber"}
    return {**rest, "serialNumber": uuid.uuid5(NAMESPACE, as_bytes(rest).decode()).urn}


def read_document(data: bytes) -> dict[str, Any]:
    """Read a CycloneDX 1.6 document that is about a component.

    Raises:
        ContractError: It isn't one.
    """
    try:
        document: dict[str, Any] = loads_object(data)
    except JsonError as error:
        raise ContractError(f"The SBOM can't be read: {error}.") from error
    if document.get("bomFormat") != "CycloneDX" or document.get("specVersion") != "1.6":
        raise ContractError("The SBOM isn't a CycloneDX 1.6 document.")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("component"), dict):
        raise ContractError("The SBOM doesn't say which component it is about.")
    if not isinstance(document.get("serialNumber"), str):
        raise ContractError("The SBOM has no serial number.")
    return document
