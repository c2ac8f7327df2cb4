"""Whether a bundle that is there is the one that a build would make: told by its record, not by its name.

A release that was interrupted goes on from what is finished. Finished is a bundle whose record, provenance,
SBOM and digest are about these bytes, and whose inputs and definitions are what a build would take now.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from ..inputs import Origin
from ..plan import Role
from ..record import SCHEMA_VERSION, asked_of, definitions_of
from ..runtime.archive import open_bundle
from ..runtime.errors import ContractError
from ..runtime.files import sha256_file
from ..runtime.reader import SBOM_NAME
from ..runtime.strict_json import JsonError, loads_object
from ..sbom import outer_sbom
from .outputs import Outputs, digest_line
from .provenance import make_provenance

if TYPE_CHECKING:
    from pathlib import Path

    from ..plan import BuildPlan, PlannedInput


def why_unfinished(plan: BuildPlan, templates: Path, *, newer: bool = False) -> str | None:
    """Return why a plan's bundle has to be built, in words that follow "it"; `None`: it is finished.

    Args:
        plan: What a build would do.
        templates: The folder of templates.
        newer: Whether a build may take the current version of a Debian package for a pinned one that is gone.
            What such a build took counts then.
    """
    outputs = Outputs(plan.output)
    files = (outputs.bundle, outputs.record, outputs.digest, outputs.sbom, outputs.provenance)
    missing = [path.name for path in files if not path.is_file()]
    if outputs.bundle.name in missing:
        return "isn't there"
    if missing:
        return f"lacks {', '.join(missing)}"
    try:
        record = loads_object(outputs.record.read_bytes())
        if record.get("schema_version") != SCHEMA_VERSION:
            return "has a build record of another version"
        return _difference(plan, record, templates, newer=newer) or _damage(outputs, record)
    except (JsonError, ContractError, KeyError, TypeError, AttributeError) as error:
        return f"isn't whole: {error}"


def _difference(plan: BuildPlan, record: dict[str, Any], templates: Path, *, newer: bool) -> str | None:
    """Return what a build would take otherwise than the one that was recorded."""
    if record["asked"] != asked_of(plan) or record["epoch"] != plan.epoch:
        return "was asked for otherwise"
    for name, digest in definitions_of(plan, templates).items():
        if record["definitions"].get(name) != digest:
            return f"was made by another definition: {name}"
    if record["builder"]["zlib_ng"] != metadata.version("zlib-ng"):
        return "was packed by another version of zlib-ng"
    made_of = {(item["name"], item["role"] == Role.BUILD.value): item for item in record["inputs"]}
    planned = {(item.name, item.role is Role.BUILD): item for item in plan.inputs}
    if made_of.keys() != planned.keys():
        names = sorted(name for name, _ in made_of.keys() ^ planned.keys())
        return f"was made of other inputs: {', '.join(names)}"
    for key, item in planned.items():
        if not _is_input(made_of[key], item, newer=newer):
            return f"was made of another {item.name}"
    return None


def _is_input(entry: dict[str, Any], item: PlannedInput, *, newer: bool) -> bool:
    """Return whether a recorded input is the one that a plan names."""
    if (entry["component"], entry["role"]) != (item.component, item.role.value):
        return False
    origin = Origin(entry["origin"])
    if item.source is not None:
        # An installed prefix is known by the archive that a build makes of it: only a build can tell.
        taken = origin is Origin.SOURCE and entry["version"] == item.version and item.source.is_file()
        return taken and bool(entry["sha256"] == sha256_file(item.source))
    if item.pin is None:
        return origin is Origin.LOOK_UP and bool(entry["version"] == item.version)
    if origin is Origin.NEWER:
        return newer
    return origin is Origin.PIN and (entry["sha256"], entry["license"]) == (item.pin.sha256, item.pin.license)


def _damage(outputs: Outputs, record: dict[str, Any]) -> str | None:
    """Return what of the files isn't about the bundle, or isn't what a build leaves."""
    inner = b""
    with open_bundle(outputs.bundle) as reader:
        for member, content in reader:
            if member.name == SBOM_NAME:
                inner = content.read(member.size)
        info = reader.info
    name = outputs.bundle.name
    if record["bundle"] != {"filename": name, "sha256": info.sha256, "size": info.size}:
        return "isn't the file that its build record describes"
    if outputs.provenance.read_bytes() != make_provenance(outputs.record.read_bytes()):
        return "has a provenance that its build record doesn't make"
    if outputs.sbom.read_bytes() != outer_sbom(inner, filename=name, sha256=info.sha256, size=info.size):
        return "has another SBOM beside it than inside"
    if outputs.digest.read_bytes() != digest_line(info.sha256, name):
        return "has another digest than the file beside it says"
    return None
