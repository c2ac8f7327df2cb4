"""Provenance: what a bundle was made of and by whom, as SLSA describes it, made from the build record.

The same build described twice differs in `runDetails` only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..package_urls import package_url
from ..pins import Pin
from ..record import SCHEMA_VERSION as RECORD_SCHEMA
from ..record import SUFFIX as RECORD_SUFFIX
from ..runtime.errors import ContractError
from ..runtime.strict_json import JsonError, loads_object
from .predicates import read_predicate, require_once
from .slsa import (
    BUILD_TYPE,
    DEFINITION,
    INPUT,
    PREDICATE_TYPE,
    SOURCE,
    BuilderFacts,
    CapsuleFacts,
    ExternalParameters,
    InputDescriptor,
    Predicate,
    SourceDescriptor,
)
from .statements import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUILD_ROLE: Final = "build"
_FROM_PIN: Final = "pin"
_DEFINITIONS: Final = {"recipe", "components", "templates", "native", "code", "pins", "dockerfile"}


@dataclass(frozen=True)
class Provenance:
    """What a provenance statement says.

    Attributes:
        statement: The statement: whom it is about.
        predicate: What it says, in SLSA's own structure.
    """

    statement: Statement
    predicate: Predicate

    @property
    def filename(self) -> str:
        """The bundle's file name."""
        return self.statement.filename

    @property
    def sha256(self) -> str:
        """The bundle's digest in lower-case hexadecimal."""
        return self.statement.sha256

    @property
    def asked(self) -> ExternalParameters:
        """What the user asked for."""
        return self.predicate.build_definition.external_parameters

    @property
    def capsule(self) -> CapsuleFacts:
        """Runtime, tag, platform and install root."""
        return self.predicate.build_definition.internal_parameters.capsule

    @property
    def epoch(self) -> int:
        """The modification time of all members, in seconds since 1970."""
        return self.predicate.build_definition.internal_parameters.epoch

    @property
    def overrides(self) -> tuple[str, ...]:
        """What differs from the pins, by name: the registry lock refuses such a bundle unless told."""
        return self.predicate.build_definition.internal_parameters.overrides

    @property
    def builder(self) -> BuilderFacts:
        """Who built, and with which versions of what."""
        return self.predicate.run_details.builder

    @property
    def source(self) -> SourceDescriptor | None:
        """The commit that built, where it is known."""
        found = [item for item in self._dependencies if isinstance(item, SourceDescriptor)]
        return found[0] if found else None

    @property
    def definitions(self) -> Mapping[str, str]:
        """The digests of recipe, templates and the like, as `sha256:...` or `dirHash:...`."""
        return {
            item.name.removeprefix(DEFINITION): f"sha256:{item.digest.sha256}"
            if item.digest.sha256
            else f"dirHash:{item.digest.dir_hash}"
            for item in self._dependencies
            if not isinstance(item, SourceDescriptor | InputDescriptor)
        }

    @property
    def inputs(self) -> tuple[InputDescriptor, ...]:
        """The inputs with their digests, in the order of the build record."""
        return tuple(item for item in self._dependencies if isinstance(item, InputDescriptor))

    @property
    def pins(self) -> tuple[Pin, ...]:
        """The inputs that came by a pin, as pins: what a rebuild takes in place of today's."""
        return tuple(pin for item in self.inputs if (pin := pin_of(item)) is not None)

    @property
    def _dependencies(self) -> tuple[Any, ...]:
        return self.predicate.build_definition.resolved_dependencies


def make_provenance(record: bytes) -> bytes:
    """Return the provenance statement of a bundle.

    Args:
        record: The bundle's build record.

    Raises:
        ContractError: It isn't a build record of this version.
    """
    what = "The build record"
    try:
        document = loads_object(record)
    except JsonError as error:
        raise ContractError(f"{what} can't be read: {error}.") from error
    if document.get("schema_version") != RECORD_SCHEMA:
        raise ContractError(
            f"{what} is of another version: {document.get('schema_version')!a}, not {RECORD_SCHEMA!a}.",
            hint="Build the bundle again.",
        )
    try:
        statement = _statement(document, record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ContractError(
            f"{what} isn't complete: {type(error).__name__}: {error}.", hint="Build the bundle again."
        ) from error
    data = statement.to_bytes()
    # A record that was edited fails here, by the name of what is wrong in it.
    read_provenance(data, f"{what}'s provenance")
    return data


def read_provenance(data: bytes, what: str = "The provenance") -> Provenance:
    """Read a provenance statement strictly.

    Args:
        data: Its bytes.
        what: The statement in the words of messages.

    Raises:
        ContractError: It isn't complete, holds something that isn't known, or contradicts itself.
        SignatureError: It is a statement of another predicate type or build type.
    """
    statement, predicate = read_predicate(data, what, BUILD_TYPE, Predicate)
    provenance = Provenance(statement, predicate)
    _check(provenance, what)
    return provenance


def pin_of(item: InputDescriptor) -> Pin | None:
    """Return the pin that an input came by; `None` for a user's own file."""
    notes = item.annotations
    if notes.pin is None:
        return None
    return Pin(
        component=notes.component,
        target=notes.pin.target,
        kind=notes.pin.kind,
        package=notes.pin.package,
        version=notes.pin.version,
        file=notes.pin.file,
        sha256=item.digest.sha256,
        size=notes.size,
        license=notes.license,
        locator=notes.pin.locator,
    )


def _statement(record: Mapping[str, Any], data: bytes) -> Statement:
    capsule, builder, source, bundle = (record[key] for key in ("capsule", "builder", "source", "bundle"))
    dependencies = [] if source is None else [_source(source)]
    dependencies += [_definition(name, digest) for name, digest in sorted(record["definitions"].items())]
    dependencies += [_input(item) for item in record["inputs"]]
    engine = builder["engine"]
    versions = {
        "capsule-build": builder["capsule_build"],
        "python": builder["python"],
        "zlib-ng": builder["zlib_ng"],
        engine["name"]: engine["server"],
        f"{engine['name']}-client": engine["client"],
    }
    metadata = {"startedOn": builder["started"], "finishedOn": builder["finished"]}
    if builder["invocation"] is not None:
        metadata["invocationId"] = builder["invocation"]
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": record["asked"],
            "internalParameters": {
                "capsule": {
                    "runtime": capsule["runtime"],
                    "tag": capsule["tag"],
                    "platform": capsule["platform"],
                    "installRoot": capsule["install_root"],
                },
                "epoch": record["epoch"],
                "overrides": record["overrides"],
            },
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": builder["id"], "version": versions},
            "metadata": metadata,
            "byproducts": [
                {
                    "name": bundle["filename"] + RECORD_SUFFIX,
                    "digest": {"sha256": hashlib.sha256(data).hexdigest()},
                }
            ],
        },
    }
    return Statement(bundle["filename"], bundle["sha256"], PREDICATE_TYPE, predicate)


def _source(source: Mapping[str, Any]) -> dict[str, Any]:
    uri = {} if source["repository"] is None else {"uri": f"git+{source['repository']}"}
    return {
        "name": SOURCE,
        **uri,
        "digest": {"gitCommit": source["commit"]},
        "annotations": {"modified": source["modified"]},
    }


def _definition(name: str, digest: str) -> dict[str, Any]:
    algorithm, _, value = digest.partition(":")
    return {"name": DEFINITION + name, "digest": {algorithm: value}}


def _input(item: Mapping[str, Any]) -> dict[str, Any]:
    name = f"{_BUILD_ROLE}/{item['name']}" if item["role"] == _BUILD_ROLE else item["name"]
    described: dict[str, Any] = {
        "name": INPUT + name,
        "digest": {"sha256": item["sha256"]},
        "annotations": {
            "component": item["component"],
            "role": item["role"],
            "version": item["version"],
            "origin": item["origin"],
            "override": item["origin"] != _FROM_PIN,
            "file": item["file"],
            "size": item["size"],
            "license": item["license"],
            "pin": item["pin"],
        },
    }
    if item["pin"] is not None:
        pin = {key: item[key] for key in ("component", "sha256", "size", "license")}
        described["uri"] = package_url(Pin(**pin, **item["pin"])).to_string()
    return described


def _check(provenance: Provenance, what: str) -> None:
    """Raise ContractError where parts that say the same thing in two ways don't agree."""

    def require(agrees: bool, message: str) -> None:
        if not agrees:
            raise ContractError(f"{what} contradicts itself: {message}.")

    definition = provenance.predicate.build_definition
    require_once((item.name for item in definition.resolved_dependencies), what)
    require(
        set(provenance.definitions) == _DEFINITIONS,
        f"its definitions are {sorted(provenance.definitions)}, not {sorted(_DEFINITIONS)}",
    )
    asked, capsule = provenance.asked, provenance.capsule
    require(
        capsule.platform == f"linux-{asked.architecture}-{asked.libc}",
        f"{asked.architecture} and {asked.libc} were asked for, and {capsule.platform} was built",
    )
    overridden = {
        item.name.removeprefix(INPUT).removeprefix(f"{_BUILD_ROLE}/")
        for item in provenance.inputs
        if item.annotations.override
    }
    require(
        overridden == set(provenance.overrides) - {"epoch"},
        f"its overrides are {list(provenance.overrides)}, its dependencies mark {sorted(overridden)}",
    )
    for item in provenance.inputs:
        notes, pin = item.annotations, pin_of(item)
        require(notes.override == (notes.origin != _FROM_PIN), f"{item.name} is marked as what it isn't")
        require(
            (pin is None) == (notes.origin == "source"), f"{item.name} has a pin exactly if it is no source"
        )
        uri = None if pin is None else package_url(pin).to_string()
        require(item.uri == uri, f"the uri of {item.name} isn't its pin's package")
