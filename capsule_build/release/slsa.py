"""The SLSA provenance of a bundle, as a strict model: nothing may be missing, and nothing else may be in it.

Format: https://slsa.dev/spec/v1.0/provenance, predicate type `https://slsa.dev/provenance/v1`; the
parameters, names and annotations are those of the build type that docs/provenance.md describes.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)
from pydantic.alias_generators import to_camel

PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:agentcompass:capsule-build:bundle:v1"

SOURCE: Final = "source"
DEFINITION: Final = "definition/"
INPUT: Final = "input/"


def _time(text: str) -> str:
    # The pattern leaves only days and hours that don't exist.
    datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Uri = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9+.-]*:[!-~]+$", max_length=4096)]
Time = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
    AfterValidator(_time),
]


class Model(BaseModel):
    """A JSON object whose keys are all known, and whose values are not converted."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True
    )


class ExternalParameters(Model):
    """What the user asked for. `epoch` is seconds since 1970; `sources` are the inputs that are their own."""

    recipe: Text
    libc: Literal["glibc", "musl"]
    architecture: Literal["x86_64", "aarch64"]
    versions: dict[Text, Text]
    sources: tuple[Text, ...]
    epoch: int | None


class RuntimeFacts(Model):
    """Which runtime the bundle holds."""

    id: Text
    version: Text


class CapsuleFacts(Model):
    """What the build made of what was asked."""

    runtime: RuntimeFacts
    tag: Text
    platform: Text
    install_root: Text


class InternalParameters(Model):
    """What follows from the request and the pins.

    `overrides` names what differs from the pins; `epoch` is the modification time of all members, in seconds
    since 1970.
    """

    capsule: CapsuleFacts
    epoch: int
    overrides: tuple[Text, ...]


class Sha256Set(Model):
    """The digest of a file."""

    sha256: Sha256


class DefinitionDigest(Model):
    """The digest of a file, or `dirHash`: a folder's (in-toto's digest set has it from Go's modules)."""

    sha256: Sha256 | None = None
    dir_hash: Sha256 | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.sha256 is None) == (self.dir_hash is None):
            raise ValueError("a definition has one digest")
        return self


class CommitDigest(Model):
    """A git commit."""

    git_commit: Commit


class SourceNotes(Model):
    """`modified`: files that builds read differ from the commit."""

    modified: bool


class SourceDescriptor(Model):
    """The commit of the checkout that built."""

    name: Literal["source"]
    uri: Uri | None = None
    digest: CommitDigest
    annotations: SourceNotes


class DefinitionDescriptor(Model):
    """A definition: the recipe, the templates, the native sources, the pins, the rendered Dockerfile."""

    name: Annotated[str, StringConstraints(pattern=r"^definition/[a-z]+$")]
    digest: DefinitionDigest


class PinNotes(Model):
    """How the package is found again: the fields of a pin that aren't in the descriptor itself."""

    target: Text
    kind: Text
    package: Text
    version: Text
    file: Text
    locator: str


class InputNotes(Model):
    """What an input is: docs/build-record.md has the words. `override`: it isn't what the pins name."""

    component: Text
    role: Text
    version: Text
    origin: Literal["pin", "look-up", "newer", "source"]
    override: bool
    file: Text
    size: Annotated[int, Field(ge=0)]
    license: Text
    pin: PinNotes | None


class InputDescriptor(Model):
    """An input of the build. `uri` is its package's URL; a user's own file has none."""

    name: Annotated[str, StringConstraints(pattern=r"^input/([A-Za-z0-9._+-]+/)?[A-Za-z0-9._+-]+$")]
    uri: Uri | None = None
    digest: Sha256Set
    annotations: InputNotes


def _kind(value: object) -> str | None:
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    if not isinstance(name, str):
        return None
    kinds = ((DEFINITION, "definition"), (INPUT, "input"))
    return SOURCE if name == SOURCE else next((kind for start, kind in kinds if name.startswith(start)), None)


Descriptor = Annotated[
    Annotated[SourceDescriptor, Tag("source")]
    | Annotated[DefinitionDescriptor, Tag("definition")]
    | Annotated[InputDescriptor, Tag("input")],
    Discriminator(
        _kind,
        custom_error_type="name",
        custom_error_message="its name must be 'source', 'definition/...' or 'input/...'",
    ),
]


class BuildDefinition(Model):
    """What was built, from what."""

    build_type: Literal["urn:agentcompass:capsule-build:bundle:v1"]
    external_parameters: ExternalParameters
    internal_parameters: InternalParameters
    resolved_dependencies: tuple[Descriptor, ...]


class BuilderFacts(Model):
    """Who built: `id` is a workflow's URI, or that of local builders; `version` tells what took part."""

    id: Uri
    version: dict[Text, Text]


class BuildMetadata(Model):
    """Which run it was, and when."""

    invocation_id: Uri | None = None
    started_on: Time
    finished_on: Time


class Byproduct(Model):
    """What else a build left: its record."""

    name: Text
    digest: Sha256Set


class RunDetails(Model):
    """The one part that differs when the same thing is built again."""

    builder: BuilderFacts
    metadata: BuildMetadata
    byproducts: tuple[Byproduct, ...]


class Predicate(Model):
    """The SLSA provenance v1 of a bundle."""

    build_definition: BuildDefinition
    run_details: RunDetails
