"""The bundle's own list of what it is made of: CycloneDX 1.6 JSON, the same bytes from the same inputs.

Format: https://cyclonedx.org/docs/1.6/json/. The library writes it; what would differ from run
to run (serial number, time) is derived from the content here.
"""

from __future__ import annotations

import datetime
import json
import re
import uuid
from typing import TYPE_CHECKING, Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from ..plan import Role
from ..resources import native_dir
from ..runtime.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ..components import Component as PartDefinition
    from ..inputs import ReadyInput
    from ..pins import Pin
    from ..plan import BuildPlan

FILE_NAME: Final = "share/sbom.cdx.json"
NATIVE: Final = "native"
"""The component that the capsule's own tools (capsule-exec, seal-tree) are listed as."""
MISSING_TEXTS: Final = "MISSING.txt"
"""Beside a component's licence texts: what it contains whose texts aren't there."""
_NAMESPACE: Final = uuid.UUID("3f3c0a52-5f0c-5b0e-9a43-6d1b8a1f7a10")
_IN_BUNDLE: Final = (Role.RUNTIME, Role.SHIPPED, Role.LINKED)


def make_sbom(
    plan: BuildPlan, inputs: Iterable[ReadyInput], parts: Mapping[str, PartDefinition], tree: Path
) -> bytes:
    """Return the SBOM of a finished tree.

    Args:
        plan: The plan that it was built by.
        inputs: The inputs that it was made of.
        parts: What each component is.
        tree: The finished tree: components that come inside others say their version there.

    Raises:
        ContractError: The tree lacks a file that the recipe names.
    """
    root = Component(
        type=ComponentType.PLATFORM,
        name=plan.manifest.runtime_id,
        version=plan.manifest.runtime_version,
        bom_ref=f"capsule:{plan.manifest.runtime_id}@{plan.manifest.runtime_version}",
        properties=[Property(name="capsule:platform", value=str(plan.platform))],
    )
    components = [
        _from_input(item, parts[item.planned.component], tree)
        for item in inputs
        if item.planned.role in _IN_BUNDLE
    ]
    components += [
        Component(
            type=ComponentType.APPLICATION,
            name=embedded.name,
            version=embedded_version(tree, embedded.version_file, embedded.version_pattern),
            bom_ref=embedded.name,
            licenses=[LicenseFactory().make_from_string(embedded.license)],
            properties=[Property(name="capsule:inside", value=embedded.inside)],
        )
        for embedded in plan.recipe.embedded
    ]
    components.append(
        Component(
            type=ComponentType.APPLICATION,
            name=NATIVE,
            version=native_version(),
            bom_ref=NATIVE,
            description="capsule-exec and seal-tree, the capsule's own tools",
            licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        )
    )
    bom = Bom(components=components)
    bom.metadata = BomMetaData(
        component=root, timestamp=datetime.datetime.fromtimestamp(plan.epoch, tz=datetime.UTC)
    )
    bom.register_dependency(root, components)
    bom.serial_number = uuid.uuid5(_NAMESPACE, JsonV1Dot6(_without_serial(bom)).output_as_string())
    return JsonV1Dot6(bom).output_as_string(indent=2).encode() + b"\n"


def component_versions(sbom: bytes) -> dict[str, str]:
    """Return the version of each component that an SBOM lists.

    Raises:
        ContractError: It isn't an SBOM.
    """
    try:
        return {entry["name"]: entry["version"] for entry in json.loads(sbom)["components"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ContractError(f"{FILE_NAME} isn't a CycloneDX SBOM with components and versions.") from error


def embedded_version(tree: Path, file: str, pattern: str) -> str:
    """Return the version that a file in a finished tree says, where `pattern` has its only group.

    Raises:
        ContractError: It doesn't.
    """
    try:
        found = re.search(pattern, (tree / file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ContractError(f"The finished tree has no readable {file}: is the source complete?") from error
    if not found:
        raise ContractError(f"The finished tree's {file} says no version: is the source complete?")
    return found.group(1)


def native_version() -> str:
    """Return the version of the capsule's own tools, as their sources say it.

    Raises:
        ContractError: They don't.
    """
    header = (native_dir() / "version.h").read_text(encoding="utf-8")
    found = re.search(r'#define\s+CAPSULE_NATIVE_VERSION\s+"([^"]+)"', header)
    if not found:
        raise ContractError("native/version.h defines no CAPSULE_NATIVE_VERSION.")
    return found.group(1)


def _without_serial(bom: Bom) -> Bom:
    # The library gives each document a random number: a fixed one lets the content decide.
    bom.serial_number = _NAMESPACE
    return bom


def _from_input(item: ReadyInput, part: PartDefinition, tree: Path) -> Component:
    # A user's own source may come without the texts of what it contains; the build then lists them in a file.
    lacking = (tree / "share/licenses" / item.planned.name / MISSING_TEXTS).is_file()
    return Component(
        type=ComponentType.LIBRARY if item.planned.role is not Role.RUNTIME else ComponentType.PLATFORM,
        name=item.planned.name,
        version=item.version,
        bom_ref=item.planned.name,
        description=part.title,
        licenses=[LicenseFactory().make_from_string(item.license)],
        purl=None if item.pin is None else _purl(item.pin),
        properties=[
            Property(name="capsule:origin", value=item.origin.value),
            Property(name="capsule:input", value=item.reference if item.pin else item.file),
            Property(name="capsule:input-sha256", value=item.sha256),
            *([Property(name="capsule:licence-texts", value="incomplete")] if lacking else []),
        ],
    )


def _purl(pin: Pin) -> PackageURL:
    """Name a pin's package as https://github.com/package-url/purl-spec has it."""
    checksum = {"checksum": f"sha256:{pin.sha256}"}
    if pin.kind == "debian":
        architecture = pin.file.removesuffix(".deb").rsplit("_", 1)[-1]
        return PackageURL("deb", "debian", pin.package, pin.version, {"arch": architecture, **checksum})
    if pin.kind == "github-release":
        owner, _, repository = pin.package.partition("/")
        return PackageURL("github", owner, repository, pin.locator, checksum)
    if pin.kind == "npm":
        scope, _, name = pin.package.rpartition("/")
        return PackageURL("npm", scope or None, name, pin.version, checksum)
    return PackageURL("pypi", None, pin.package, pin.version, {"file_name": pin.file, **checksum})
