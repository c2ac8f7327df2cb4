"""The document: a bundle's components, their files, licences and needs, as CycloneDX 1.6 JSON.

The library writes what it models. Files and compositions are added to what it wrote; what would differ from
run to run (serial number, time) is derived from the content.
"""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    AttachedText,
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.contact import OrganizationalContact, OrganizationalEntity
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6

from ..plan import Role
from ..runtime.errors import ContractError
from .checks import check_document
from .contained import contained_parts
from .needs import needs_of_programs
from .own import LICENCES, NATIVE, SUPPLIER
from .owners import ROOT, ShippedFile, group_by_owner, shipped_files
from .texts import FROM_LIST, MISSING, own_texts
from .writing import CAPSULE, NAMESPACE, TEXTS, as_bytes, with_serial_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from cyclonedx.model.license import License

    from ..plan import BuildPlan
    from .parts import Part

_PACKAGE_REF: Final = "pkg:"


def make_sbom(plan: BuildPlan, parts: Sequence[Part], tree: Path) -> bytes:
    """Return the SBOM of a finished tree, which has its manifest, licence texts and notice already.

    Args:
        plan: The plan that it was built by.
        parts: Its components.
        tree: The tree.

    Raises:
        ContractError: A file belongs to no component, or to two.
    """
    files = shipped_files(tree, parts)
    root = _root(plan)
    components = {part.ref: _component(part, tree) for part in parts}
    bom = Bom(components=components.values(), serial_number=NAMESPACE)
    bom.metadata = BomMetaData(
        component=root, timestamp=datetime.datetime.fromtimestamp(plan.epoch, tz=datetime.UTC)
    )
    needs = _needs(parts, tree, files, plan.manifest.install_root)
    bom.register_dependency(root, [components[ref] for ref in _top(parts, needs)])
    for ref, others in needs.items():
        bom.register_dependency(components[ref], [components[other] for other in sorted(others)])
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    _add_places(document, parts)
    _add_contained(document, contained_parts(tree, plan.recipe.contained))
    _add_files(document, files)
    document["metadata"]["authors"] = [{"name": SUPPLIER}]
    document["metadata"]["lifecycles"] = [{"phase": "build"}]
    document["compositions"] = _compositions(parts, str(root.bom_ref.value))
    # What packages say of themselves could be anything.
    check_document(document)
    return as_bytes(with_serial_number(document))


def component_versions(sbom: bytes) -> dict[str, str]:
    """Return the versions of the components that recipes name, not of packages that came along.

    Raises:
        ContractError: It isn't an SBOM.
    """
    try:
        return {
            entry["name"]: entry["version"]
            for entry in json.loads(sbom)["components"]
            if not entry["bom-ref"].startswith(_PACKAGE_REF)
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError("The SBOM isn't CycloneDX with components, references and versions.") from error


def _root(plan: BuildPlan) -> Component:
    manifest = plan.manifest
    return Component(
        type=ComponentType.PLATFORM,
        name=manifest.runtime_id,
        version=manifest.runtime_version,
        description=plan.recipe.title,
        supplier=OrganizationalEntity(name=SUPPLIER),
        bom_ref=f"{CAPSULE}:{manifest.runtime_id}@{manifest.runtime_version}-{manifest.platform}",
        properties=[
            Property(name=f"{CAPSULE}:platform", value=str(manifest.platform)),
            Property(name=f"{CAPSULE}:install-root", value=manifest.install_root),
        ],
    )


def _component(part: Part, tree: Path) -> Component:
    return Component(
        type=_type(part),
        name=part.name,
        version=part.version,
        bom_ref=part.ref,
        description=part.title or None,
        supplier=OrganizationalEntity(name=part.supplier) if part.supplier else None,
        authors=[OrganizationalContact(name=part.author)] if part.author else None,
        licenses=[_licence(part, tree)],
        purl=part.purl,
        external_references=_references(part),
        properties=_properties(part, tree),
    )


def _type(part: Part) -> ComponentType:
    if part.role is Role.RUNTIME and part.item is not None:
        return ComponentType.PLATFORM
    return ComponentType.APPLICATION if part.ref == NATIVE else ComponentType.LIBRARY


def _licence(part: Part, tree: Path) -> License:
    """Return a licence by its SPDX name; one without such a name comes with its whole text."""
    if part.licence.expression:
        return LicenseFactory().make_from_string(part.licence.expression)
    folder = tree / LICENCES / part.folder
    text = "\n".join((folder / name).read_text("utf-8", "replace") for name in own_texts(folder))
    return DisjunctiveLicense(
        name=part.licence.label, text=AttachedText(content=text, content_type="text/plain")
    )


def _references(part: Part) -> list[ExternalReference]:
    found = [
        ExternalReference(type=ExternalReferenceType.SOURCE_DISTRIBUTION, url=XsUri(url))
        for url in part.sources
    ]
    if part.item is not None and part.purl is not None:
        digest = HashType(alg=HashAlgorithm.SHA_256, content=part.item.sha256)
        url = XsUri(str(part.purl))
        found.append(ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=url, hashes=[digest]))
    return found


def _properties(part: Part, tree: Path) -> list[Property]:
    folder = tree / LICENCES / part.folder
    values = {}
    if part.item is not None:
        item = part.item
        # The path of a user's own file stays at home.
        values = {
            "origin": item.origin.value,
            "input": item.reference if item.pin else item.file,
            "input-sha256": item.sha256,
        }
    if (folder / MISSING).is_file():
        values[TEXTS] = "incomplete"
    elif any(name.startswith(FROM_LIST) for name in own_texts(folder)):
        values[TEXTS] = "spdx-list"
    return [Property(name=f"{CAPSULE}:{name}", value=value) for name, value in values.items()]


def _needs(
    parts: Iterable[Part], tree: Path, files: Iterable[ShippedFile], install_root: str
) -> dict[str, set[str]]:
    found = {part.ref: set(part.needs) for part in parts}
    for ref, others in needs_of_programs(tree, files, install_root).items():
        found[ref] |= others
    return found


def _top(parts: Iterable[Part], needs: dict[str, set[str]]) -> list[str]:
    """Return what the bundle itself is made of: what a recipe names, and what nothing else asks for."""
    asked = {other for others in needs.values() for other in others}
    return sorted(
        part.ref for part in parts if not part.ref.startswith(_PACKAGE_REF) or part.ref not in asked
    )


def _add_places(document: dict[str, Any], parts: Iterable[Part]) -> None:
    places = {part.ref: part.places for part in parts}
    for entry in document["components"]:
        if places[entry["bom-ref"]]:
            occurrences = [{"location": place} for place in sorted(places[entry["bom-ref"]])]
            entry["evidence"] = {"occurrences": occurrences}


def _add_contained(document: dict[str, Any], contained: Mapping[str, list[dict[str, Any]]]) -> None:
    needs = {entry["ref"]: entry for entry in document["dependencies"]}
    for entry in document["components"]:
        inner = contained.get(entry["bom-ref"])
        if inner:
            entry["components"] = inner
            refs = [component["bom-ref"] for component in inner]
            own = needs[entry["bom-ref"]]
            own["dependsOn"] = sorted([*own.get("dependsOn", []), *refs])
            document["dependencies"] += [{"ref": ref} for ref in refs]


def _add_files(document: dict[str, Any], files: Iterable[ShippedFile]) -> None:
    """Put each file into its component, as a component of the type `file`."""
    grouped = group_by_owner(files)
    root = document["metadata"]["component"]
    for entry, owner in ((root, ROOT), *((entry, entry["bom-ref"]) for entry in document["components"])):
        own = [
            {"type": "file", "name": file.name, "hashes": [{"alg": "SHA-256", "content": file.sha256}]}
            for file in grouped.get(owner, ())
        ]
        if own:
            entry["components"] = [*entry.get("components", []), *own]


def _compositions(parts: Iterable[Part], root: str) -> list[dict[str, Any]]:
    """Say how far the lists go: every file is listed, but not all that upstream linked into a program."""
    incomplete = [part.ref for part in parts if part.item is not None and part.role is not Role.LINKED]
    return [
        {"aggregate": "complete", "assemblies": sorted([root, NATIVE])},
        {"aggregate": "incomplete", "assemblies": sorted(incomplete)},
    ]
