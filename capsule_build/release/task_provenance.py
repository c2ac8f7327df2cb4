"""Provenance of a task bundle: what it was packed from, its guest, what its tasks are granted, and by whom.

As SLSA describes it, with a build type of its own: docs/task-bundles.md. No time is in it, so what is packed
again by the same version, on the same Python, has the same provenance.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, StringConstraints

from .. import __version__
from ..builder import builder_of
from .predicates import read_predicate, require_once
from .slsa import PREDICATE_TYPE, BuilderFacts, Model, Sha256, Sha256Set, Text, Uri
from .statements import Statement

if TYPE_CHECKING:
    from collections.abc import Mapping

BUILD_TYPE: Final = "urn:agentcompass:capsule-build:task:v1"
INPUT: Final = "input/"
GUEST: Final = "guest/"

Language = Literal["python", "javascript"]


class Asked(Model):
    """What the user asked for: to have a file packed."""

    file: Text
    language: Language


class TaskFacts(Model):
    """What the packed file says: its entry point, its tasks, and the digest of what they are granted."""

    entry: Text
    tasks: tuple[Text, ...]
    version: Text | None
    policy_sha256: Sha256


class GuestFacts(Model):
    """The guest that it was packed for."""

    language: Language
    sha256: Sha256


class Found(Model):
    """What follows from the file."""

    task: TaskFacts
    guest: GuestFacts


class InputDescriptor(Model):
    """A file that was packed, or that decided what was."""

    name: Annotated[str, StringConstraints(pattern=r"^(input|guest)/.", max_length=4096)]
    digest: Sha256Set


class BuildDefinition(Model):
    """What was packed, from what."""

    build_type: Literal["urn:agentcompass:capsule-build:task:v1"]
    external_parameters: Asked
    internal_parameters: Found
    resolved_dependencies: Annotated[tuple[InputDescriptor, ...], Field(min_length=2)]


class BuildMetadata(Model):
    """Which run it was."""

    invocation_id: Uri | None = None


class RunDetails(Model):
    """Who packed it."""

    builder: BuilderFacts
    metadata: BuildMetadata


class Predicate(Model):
    """The SLSA provenance v1 of a task bundle."""

    build_definition: BuildDefinition
    run_details: RunDetails


@dataclass(frozen=True)
class TaskProvenance:
    """What a provenance statement says of a task bundle.

    Attributes:
        statement: The statement: whom it is about.
        predicate: What it says, in SLSA's own structure.
    """

    statement: Statement
    predicate: Predicate

    @property
    def builder(self) -> BuilderFacts:
        """Who packed it, and with which versions of what."""
        return self.predicate.run_details.builder

    @property
    def asked(self) -> Asked:
        """What the user asked for."""
        return self.predicate.build_definition.external_parameters

    @property
    def found(self) -> Found:
        """What the packed file is, and for which guest."""
        return self.predicate.build_definition.internal_parameters

    @property
    def inputs(self) -> Mapping[str, str]:
        """The SHA-256 of each file that went in, by its name."""
        return {
            item.name.removeprefix(INPUT): item.digest.sha256
            for item in self.predicate.build_definition.resolved_dependencies
            if item.name.startswith(INPUT)
        }


def make_task_provenance(
    filename: str,
    sha256: str,
    *,
    file: str,
    found: Found,
    inputs: Mapping[str, str],
    tools: Mapping[str, str],
) -> bytes:
    """Return the provenance statement of a task bundle.

    Args:
        filename: The bundle's file name.
        sha256: Its digest.
        file: The source file's name.
        found: What the packed file says.
        inputs: The SHA-256 of each file that went in, by its name.
        tools: The versions of what took part beside this project and Python.
    """
    builder = builder_of()
    dependencies = {f"{INPUT}{name}": digest for name, digest in inputs.items()}
    dependencies[f"{GUEST}{found.guest.language}"] = found.guest.sha256
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"file": file, "language": found.guest.language},
            "internalParameters": found.model_dump(by_alias=True, mode="json"),
            "resolvedDependencies": [
                {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(dependencies.items())
            ],
        },
        "runDetails": {
            "builder": {
                "id": builder.id,
                "version": {
                    "capsule-build": __version__,
                    "python": platform.python_version(),
                    "zlib-ng": metadata.version("zlib-ng"),
                    **tools,
                },
            },
            "metadata": {} if builder.invocation is None else {"invocationId": builder.invocation},
        },
    }
    data = Statement(filename, sha256, PREDICATE_TYPE, predicate).to_bytes()
    read_task_provenance(data)
    return data


def read_task_provenance(data: bytes, what: str = "The provenance") -> TaskProvenance:
    """Read the provenance statement of a task bundle strictly.

    Args:
        data: Its bytes.
        what: The statement in the words of messages.

    Raises:
        ContractError: It isn't complete, holds something that isn't known, or contradicts itself.
        SignatureError: It is a statement of another predicate type or build type.
    """
    statement, predicate = read_predicate(data, what, BUILD_TYPE, Predicate)
    require_once((item.name for item in predicate.build_definition.resolved_dependencies), what)
    return TaskProvenance(statement, predicate)
