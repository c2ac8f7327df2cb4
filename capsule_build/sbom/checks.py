"""Whether an SBOM holds: the official schema, and what that leaves open.

The schema takes two things of one bom-ref, references to nothing, package URLs that aren't any, and licence
expressions that nobody can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from packageurl import PackageURL

from ..runtime.errors import ContractError
from . import spdx
from .schema import check_schema
from .writing import read_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def check_sbom(data: bytes) -> None:
    """Hold an SBOM against CycloneDX 1.6's schema and against what the schema leaves open.

    Raises:
        ContractError: It doesn't hold; the message says where.
    """
    document = read_document(data)
    # The schema comes first: the rest relies on the types that it has checked.
    check_schema(document)
    check_document(document)


def check_files(sbom: bytes, digests: Mapping[str, str]) -> None:
    """Hold the files that an SBOM lists against those of a bundle.

    Args:
        sbom: The SBOM.
        digests: The SHA-256 of each regular file of the bundle but the SBOM itself, by its name.

    Raises:
        ContractError: A file isn't listed, is listed twice, isn't there, or has another digest.
    """
    listed: dict[str, object] = {}
    for component in components_of(read_document(sbom)):
        if component.get("type") == "file":
            name = str(component.get("name"))
            if name in listed:
                raise ContractError(f"The SBOM lists the file {name!a} twice.")
            listed[name] = component.get("hashes")
    for name, digest in sorted(digests.items()):
        if name not in listed:
            raise ContractError(f"The SBOM doesn't list the file {name!a}.")
        if listed[name] != [{"alg": "SHA-256", "content": digest}]:
            raise ContractError(f"The SBOM lists the file {name!a} with another digest than {digest}.")
    if absent := sorted(listed.keys() - digests.keys()):
        raise ContractError(f"The SBOM lists the file {absent[0]!a}, which isn't in the bundle.")


def check_document(document: dict[str, Any]) -> None:
    """Hold a document that keeps the schema, such as one's own, against what the schema leaves open.

    Raises:
        ContractError: It doesn't hold; the message says where.
    """
    _check_references(document)
    for component in components_of(document):
        _check_component(component)


def _check_references(document: dict[str, Any]) -> None:
    known: set[str] = set()
    for component in components_of(document):
        reference = component.get("bom-ref")
        if reference in known:
            raise ContractError(f"The SBOM has the bom-ref {reference!a} twice.")
        if isinstance(reference, str):
            known.add(reference)
    said: set[str] = set()
    for entry in _objects(document.get("dependencies")):
        if entry.get("ref") in said:
            raise ContractError(f"The SBOM lists the dependencies of {entry.get('ref')!a} twice.")
        said.add(str(entry.get("ref")))
        for reference in (entry.get("ref"), *entry.get("dependsOn", ()), *entry.get("provides", ())):
            _check_known(reference, known, "a dependency")
    for entry in _objects(document.get("compositions")):
        for reference in (*entry.get("assemblies", ()), *entry.get("dependencies", ())):
            _check_known(reference, known, "a composition")


def components_of(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all components of a document, also those in others, the one that it is about first."""
    waiting = [document["metadata"]["component"], *_objects(document.get("components"))]
    while waiting:
        component = waiting.pop(0)
        yield component
        waiting[:0] = _objects(component.get("components"))


def _check_known(reference: object, known: set[str], where: str) -> None:
    if reference not in known:
        raise ContractError(f"The SBOM has {where} of {reference!a}, which is no component of it.")


def _check_component(component: dict[str, Any]) -> None:
    name = component.get("name")
    if "purl" in component:
        try:
            canonical = PackageURL.from_string(component["purl"]).to_string()
        except ValueError as error:
            raise ContractError(f"The SBOM's component {name!a} has no valid package URL: {error}") from error
        if canonical != component["purl"]:
            raise ContractError(f"The SBOM's component {name!a} has a package URL other than {canonical}.")
    for choice in _objects(component.get("licenses")):
        expression = choice.get("expression")
        if isinstance(expression, str) and spdx.normalised(expression) is None:
            raise ContractError(
                f"The SBOM's component {name!a} has the licence {expression!a}: no SPDX expression."
            )


def _objects(value: object) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ContractError("The SBOM has a list of something other than objects.")
    return value
