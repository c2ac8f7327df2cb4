"""The build record: what was asked, every input with its digest, and what did the work.

It is written beside the bundle as `<bundle>.build.json`; its keys are documented in docs/build-record.md.
The release's provenance is made from it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from . import __version__
from .builder import builder_of, source_of
from .inputs import Origin
from .pins import dump_pins
from .resources import checkout, native_dir, package_dir

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .engine.protocol import EngineInfo
    from .inputs import ReadyInput
    from .pack import Packed
    from .pins import Pin, PinSet
    from .plan import BuildPlan

SCHEMA_VERSION: Final = "capsule-build.record.v2"
SUFFIX: Final = ".build.json"
_NO_PART_OF_BUNDLES: Final = frozenset({"_data", "cli", "engine", "fetch", "release", "runtime", "sandbox"})
"""Folders of the package whose code decides no byte of a bundle."""


def make_record(
    plan: BuildPlan,
    inputs: Iterable[ReadyInput],
    packed: Packed,
    *,
    pins: PinSet,
    templates: Path,
    dockerfile: str,
    engine: EngineInfo,
    started: datetime.datetime,
) -> bytes:
    """Return the build record of a bundle: JSON with sorted keys, and a final newline.

    Args:
        plan: The plan that it was built by.
        inputs: The inputs that it was made of.
        packed: The bundle's digest and size.
        pins: The pins that the plan was made with.
        templates: The folder of templates.
        dockerfile: The rendered Dockerfile.
        engine: What built it.
        started: When the build began. It ends now.
    """
    builder = builder_of()
    source = source_of(checkout())
    record = {
        "schema_version": SCHEMA_VERSION,
        "bundle": {"filename": plan.output.name, "sha256": packed.sha256, "size": packed.size},
        "capsule": {
            "runtime": {"id": plan.manifest.runtime_id, "version": plan.manifest.runtime_version},
            "tag": plan.recipe.tag,
            "platform": str(plan.platform),
            "install_root": plan.manifest.install_root,
        },
        "asked": asked_of(plan),
        "epoch": plan.epoch,
        "inputs": [_input(item) for item in inputs],
        "overrides": _overrides(plan, inputs, pins),
        "definitions": {
            **definitions_of(plan, templates),
            "pins": _digest(dump_pins(pins)),
            "dockerfile": _digest(dockerfile.encode()),
        },
        "source": None
        if source is None
        else {"commit": source.commit, "modified": source.modified, "repository": source.repository},
        "builder": {
            "id": builder.id,
            "invocation": builder.invocation,
            "started": _time(started),
            "finished": _time(datetime.datetime.now(datetime.UTC)),
            "capsule_build": __version__,
            "python": platform.python_version(),
            "zlib_ng": metadata.version("zlib-ng"),
            "engine": {"name": engine.name, "client": engine.client_version, "server": engine.server_version},
        },
    }
    return (json.dumps(record, indent=2, sort_keys=True) + "\n").encode()


def asked_of(plan: BuildPlan) -> dict[str, Any]:
    """Return what the user asked for, as a record has it."""
    options = plan.options
    return {
        "recipe": plan.recipe.id,
        "libc": options.libc,
        "architecture": options.architecture,
        "versions": dict(options.versions),
        "sources": sorted(options.sources),
        "epoch": options.epoch,
    }


def definitions_of(plan: BuildPlan, templates: Path) -> dict[str, str]:
    """Return the digests of what decides a bundle's bytes beside its inputs.

    The pins and the rendered Dockerfile aren't among them: they follow from these and from the inputs.
    """
    return {
        "recipe": _digest(plan.recipe.path.read_bytes()),
        "components": _digest(plan.recipe.path.with_name("components.toml").read_bytes()),
        "templates": _tree_digest(templates),
        "native": _tree_digest(native_dir()),
        "code": _tree_digest(package_dir(), "*.py", without=_NO_PART_OF_BUNDLES),
    }


def _overrides(plan: BuildPlan, inputs: Iterable[ReadyInput], pins: PinSet) -> list[str]:
    """Return what differs from the pins, by name: the bundle is not the one that a tag stands for."""
    names = {item.planned.name for item in inputs if item.origin is not Origin.PIN}
    if plan.epoch != pins.epoch:
        names.add("epoch")
    return sorted(names)


def _input(item: ReadyInput) -> dict[str, Any]:
    return {
        "name": item.planned.name,
        "component": item.planned.component,
        "role": item.planned.role.value,
        "version": item.version,
        "origin": item.origin.value,
        # A path of the builder's machine says nothing to others, and too much about the machine.
        "reference": item.reference if item.pin else None,
        "pin": _pin(item.pin) if item.pin else None,
        "file": item.file,
        "sha256": item.sha256,
        "size": item.size,
        "license": item.license,
    }


def _pin(pin: Pin) -> dict[str, str]:
    return {
        "target": pin.target,
        "kind": pin.kind,
        "package": pin.package,
        "version": pin.version,
        "file": pin.file,
        "locator": pin.locator,
    }


def _time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _tree_digest(folder: Path, pattern: str = "*", *, without: frozenset[str] = frozenset()) -> str:
    """Return one digest over the names and bytes of all files that a build takes from a folder.

    It is in-toto's `dirHash` (Go's Hash1): the SHA-256 of what `sha256sum` prints of all files by name.
    """
    files = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob(pattern)
        if path.is_file() and not {"__pycache__", *without} & set(path.relative_to(folder).parts)
    }
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
    return f"dirHash:{digest.hexdigest()}"
