"""Builds a bundle again from its provenance, and compares.

The inputs are those that the provenance names, by digest, whatever the pins of this checkout say now. The
definitions (recipe, templates, native sources, code) are this checkout's: where they aren't those of the
provenance, that is said, since then another bundle is no surprise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Final

from ..build import build, prepare_output
from ..inputs import Origin
from ..pins import PinSet
from ..plan import BuildOptions, Role, make_plan
from ..recipes import find_recipe
from ..record import definitions_of
from ..runtime.archive import check_bundle
from ..runtime.errors import ContractError, InputError, UsageError
from ..runtime.files import sha256_file
from ..runtime.platforms import host_architecture
from .comparing import compare_members
from .outputs import Outputs, require_bundle
from .provenance import read_provenance
from .slsa import INPUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..build import Reporter, Workshop
    from ..plan import BuildPlan
    from ..recipes import Recipe
    from .comparing import Comparison
    from .provenance import Provenance

_PACKER: Final = "zlib-ng"


@dataclass(frozen=True)
class Task:
    """A bundle that is to be built again.

    Attributes:
        bundle: The bundle.
        provenance: What it was made of.
        plan: What the build will do: the provenance's inputs, by digest.
        pins: The pins that the plan was made with.
        differences: What this checkout has otherwise than the provenance: definitions, and the compressor.
        moved: Inputs that this checkout's pins don't name any more; they are fetched by digest all the same.
    """

    bundle: Path
    provenance: Provenance
    plan: BuildPlan
    pins: PinSet
    differences: tuple[str, ...]
    moved: tuple[str, ...]


@dataclass(frozen=True)
class Reproduction:
    """What came of it.

    Attributes:
        sha256: The digest of the bundle that was built.
        comparison: What differs from the first; `None`: nothing does.
    """

    sha256: str
    comparison: Comparison | None


def plan_reproduction(
    bundle: Path,
    recipes: Mapping[str, Recipe],
    pins: PinSet,
    templates: Path,
    *,
    output: Path,
    sources: Mapping[str, Path],
    provenance: Path | None = None,
) -> Task:
    """Decide how a bundle is built again.

    Args:
        bundle: The bundle.
        recipes: This checkout's recipes.
        pins: Its pins.
        templates: Its templates.
        output: Where the second bundle goes.
        sources: The user's own inputs, which no pin names.
        provenance: The bundle's provenance, where it isn't beside it.

    Raises:
        UsageError: A file can't be read, `output` is the bundle itself, there is no such recipe here, or a
            source is missing or too much.
        ContractError: The bundle or its provenance breaks its format.
        SignatureError: The provenance is about another file.
        InputError: A source isn't the file that was taken.
    """
    require_bundle(bundle)
    if output.exists() and output.samefile(bundle):
        # It would be compared with itself, and its signatures would go.
        raise UsageError(
            f"--output {output} is the bundle itself, and the second one would take its place.",
            hint="Give another path.",
        )
    path = provenance or Outputs(bundle).provenance
    if not path.is_file():
        raise UsageError(
            f"There is no provenance {path}.",
            hint="It lies beside a released bundle, or --provenance names it.",
        )
    facts = read_provenance(path.read_bytes(), str(path))
    facts.statement.require_subject(bundle.name, check_bundle(bundle).sha256, str(path))
    recipe = find_recipe(recipes, facts.asked.recipe)
    _check_sources(facts, sources)
    theirs = PinSet(facts.epoch, pins.pins).replace(facts.pins)
    options = BuildOptions(
        libc=facts.asked.libc,
        architecture=facts.asked.architecture,
        build_architecture=host_architecture(),
        versions=facts.asked.versions,
        sources=dict(sources),
        epoch=facts.asked.epoch,
        output=output,
    )
    plan = _as_then(make_plan(recipe, options, theirs, dist=output.parent), facts)
    own = {pin.key: pin.sha256 for pin in pins.pins}
    return Task(
        bundle,
        facts,
        plan,
        theirs,
        differences=tuple(_differences(plan, templates, facts)),
        moved=tuple(dict.fromkeys(pin.label for pin in facts.pins if own.get(pin.key) != pin.sha256)),
    )


def reproduce(task: Task, shop: Workshop, report: Reporter) -> Reproduction:
    """Build a bundle again, and compare.

    Args:
        task: How.
        shop: What to build with; its pins don't count.
        report: Hears how it goes on.

    Raises:
        InputError: An input can't be had any more, or isn't what the provenance says.
        CapsuleError: The build fails.
    """
    prepare_output(task.plan.output, may_make_folder=False)
    # A newer input in a vanished one's place would be another build.
    result = build(task.plan, replace(shop, pins=task.pins, newer=False), report)
    taken = {(item.planned.key, item.sha256) for item in result.inputs}
    wanted = {(item.name.removeprefix(INPUT), item.digest.sha256) for item in task.provenance.inputs}
    if taken != wanted:
        names = sorted({name for name, _ in taken ^ wanted})
        raise InputError(
            f"The build took other inputs than the provenance names: {', '.join(names)}.",
            hint="A folder that is a source is known by the archive made of it; or the recipe changed.",
        )
    if result.packed.sha256 == task.provenance.sha256:
        return Reproduction(result.packed.sha256, None)
    return Reproduction(result.packed.sha256, compare_members(task.bundle, task.plan.output))


def _check_sources(facts: Provenance, sources: Mapping[str, Path]) -> None:
    """Raise unless the user's own inputs are given again, and are the same files."""
    wanted = set(facts.asked.sources)
    for name in sorted(set(sources) - wanted):
        raise UsageError(f"--source {name}=...: the bundle was made without one.")
    for name in sorted(wanted):
        item = next(
            (
                item
                for item in facts.inputs
                if item.annotations.origin == Origin.SOURCE.value
                and name in (item.name.removeprefix(INPUT), item.annotations.component)
            ),
            None,
        )
        if item is None:
            raise ContractError(f"The provenance names the source {name}, and no input that came from it.")
        digest = item.digest.sha256
        if name not in sources:
            raise UsageError(
                f"The bundle was made with an own file for {name}, of SHA-256 {digest}.",
                hint=f"Give it again: --source {name}=PATH.",
            )
        path = sources[name]
        # What a folder is known by only the build makes: it is compared with the other inputs.
        if path.is_file() and (found := sha256_file(path)) != digest:
            raise InputError(f"--source {name}={path} has SHA-256 {found}; what was taken had {digest}.")


def _differences(plan: BuildPlan, templates: Path, facts: Provenance) -> Iterator[str]:
    for name, digest in definitions_of(plan, templates).items():
        if facts.definitions.get(name) != digest:
            yield f"definition: {name}"
    packer = metadata.version(_PACKER)
    if (then := facts.builder.version.get(_PACKER, "unknown")) != packer:
        yield f"{_PACKER}: {then} then, {packer} now"


def _as_then(plan: BuildPlan, facts: Provenance) -> BuildPlan:
    """Return the plan with the version that the capsule had, and the inputs that it was made of."""
    names = {item.name.removeprefix(INPUT) for item in facts.inputs}
    capsule = facts.capsule
    manifest = replace(
        plan.manifest, runtime_version=capsule.runtime.version, install_root=capsule.install_root
    )
    # Pinned licence texts go with a pinned runtime: for a version that was looked up there were none.
    inputs = tuple(item for item in plan.inputs if item.role is not Role.TEXTS or item.key in names)
    return replace(plan, manifest=manifest, inputs=inputs)
