"""The SBOM beside a bundle: the one inside, plus the bundle's own digest, which that one can't know."""

from __future__ import annotations

from typing import Any

from ..runtime.errors import ContractError
from .writing import CAPSULE, as_bytes, read_document, with_serial_number


def outer_sbom(inner: bytes, *, filename: str, sha256: str, size: int) -> bytes:
    """Return the SBOM that is published beside a bundle.

    It is a document of its own, with a serial number of its own, and names the inner one by its BOM-Link
    (https://cyclonedx.org/capabilities/bomlink/).

    Args:
        inner: The bundle's `share/sbom.cdx.json`.
        filename: The bundle's file name.
        sha256: The bundle's SHA-256, in lower-case hexadecimal.
        size: The bundle's size in bytes.

    Raises:
        ContractError: `inner` isn't a CycloneDX document about a component.
    """
    document = read_document(inner)
    root: dict[str, Any] = document["metadata"]["component"]
    root["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    root["properties"] = [
        *_list(root, "properties"),
        {"name": f"{CAPSULE}:filename", "value": filename},
        {"name": f"{CAPSULE}:size", "value": str(size)},
    ]
    serial = str(document["serialNumber"]).removeprefix("urn:uuid:")
    inside = {"type": "bom", "url": f"urn:cdx:{serial}/1", "comment": "The same, inside the bundle."}
    root["externalReferences"] = [*_list(root, "externalReferences"), inside]
    return as_bytes(with_serial_number(document))


def _list(component: dict[str, Any], key: str) -> list[Any]:
    value = component.get(key, [])
    if not isinstance(value, list):
        raise ContractError(f"The SBOM's component {component.get('name')!a} has {key} that are not a list.")
    return value
