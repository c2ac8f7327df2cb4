"""Does what a plan says: inputs, context, engine, tree, bundle, checks.

Nothing has its final name before all of it passed.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from . import smoke
from .collect import collect
from .engine.protocol import BuildError, ContainerSpec, container
from .fetch import Progress
from .inputs import acquire
from .pack import pack
from .record import make_record
from .release.outputs import BUNDLE_SUFFIX, Outputs, digest_line, publish, remove_stale, unnamed
from .release.provenance import make_provenance
from .release.statements import FILE_NAME
from .release.unchanged import is_unchanged
from .render import render
from .runtime.archive import check_bundle
from .runtime.errors import ContractError, UsageError
from .runtime.files import atomic_writer
from .runtime.manifest import FILE_NAME as MANIFEST
from .sbom import FILE_NAME as SBOM
from .sbom import describe_tree, outer_sbom

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .components import Component
    from .engine.protocol import Engine
    from .fetch import Cache
    from .inputs import ReadyInput
    from .pack import Packed
    from .pins import PinSet
    from .plan import BuildPlan
    from .render import Context
    from .smoke import ToolResult

LOG_SUFFIX: Final = ".build.log"


class Reporter(Progress, Protocol):
    """Hears how a build goes on."""

    def step(self, text: str) -> None:
        """Hear that a step begins."""

    def log(self, line: str) -> None:
        """Hear a line of the engine's log."""

    def packed(self, size: int) -> None:
        """Hear that this many more bytes of the tree were packed."""


@dataclass(frozen=True)
class BuildResult:
    """A finished bundle: what it is, what it was made of, and how its tools did."""

    plan: BuildPlan
    packed: Packed
    inputs: tuple[ReadyInput, ...]
    smoke: tuple[ToolResult, ...]


@dataclass(frozen=True)
class Workshop:
    """What builds share: the definitions, the cache, and the engine.

    Attributes:
        engine: The engine.
        components: What each component is.
        pins: The pinned inputs.
        cache: The content-addressed cache.
        templates: The folder of templates.
        newer: Whether the current version may take the place of a pinned Debian one that is gone.
        keep: Whether a failed build's containers and log stay.
    """

    engine: Engine
    components: Mapping[str, Component]
    pins: PinSet
    cache: Cache
    templates: Path
    newer: bool = False
    keep: bool = False


def build(plan: BuildPlan, shop: Workshop, report: Reporter) -> BuildResult:
    """Build a bundle and its record.

    Args:
        plan: What to build.
        shop: What to build it with.
        report: Hears how it goes on.

    Raises:
        UsageError: The output can't be written, or an option doesn't hold.
        InputError: An input can't be had.
        ContractError: What was built breaks the contract.
        CapsuleError: A step of the build, or the smoke test, failed. The previous bundle is untouched.
    """
    if plan.platform.architecture != plan.options.build_architecture:
        raise UsageError(
            f"A capsule for {plan.platform.architecture} can't be tried on "
            f"{plan.options.build_architecture}, and one that wasn't tried gets no bundle.",
            hint="Build it on a machine of that architecture.",
        )
    started = datetime.datetime.now(datetime.UTC)
    prepare_output(plan.output, may_make_folder=plan.options.output is None)
    with shop.cache.stage() as scratch:
        report.step("Inputs")
        inputs = acquire(
            plan,
            shop.components,
            cache=shop.cache,
            progress=report,
            scratch=_folder(scratch / "sources"),
            newer=shop.newer,
        )
        context = render(plan, inputs, _folder(scratch / "context"), templates=shop.templates)
        report.step(f"Build with {shop.engine.name}")
        tree = _folder(scratch / "tree")
        _build_tree(plan, shop, context, tree, report)
        (tree / MANIFEST).write_bytes(plan.manifest.to_bytes())
        describe_tree(plan, inputs, shop.components, tree)
        report.step("Pack")
        with _unnamed(plan.output) as candidate:
            with candidate.open("wb") as out:
                packed = pack(tree, out, epoch=plan.epoch, advanced=report.packed)
                out.flush()
                os.fsync(out.fileno())
            report.step("Check")
            info = check_bundle(candidate)
            if info.manifest != plan.manifest or info.sha256 != packed.sha256:
                raise ContractError("The bundle that was written is not the one that was planned.")
            report.step("Smoke")
            results = _smoke(plan, shop, inputs, candidate, _folder(scratch / "smoke"))
            record = make_record(
                plan,
                inputs,
                packed,
                pins=shop.pins,
                templates=shop.templates,
                dockerfile=context.dockerfile,
                engine=shop.engine.info(),
                started=started,
            )
            _publish(plan, candidate, packed, record, (tree / SBOM).read_bytes(), report)
    return BuildResult(plan, packed, inputs, results)


def prepare_output(output: Path, *, may_make_folder: bool) -> None:
    """Make sure that a bundle can be written, before any work is done for it.

    Args:
        output: The bundle's path.
        may_make_folder: Whether its folder is made if it is missing: the default one is.

    Raises:
        UsageError: It can't.
    """
    if output.is_dir():
        raise UsageError(f"The output {output} is a folder.", hint="Give the path of the bundle's file.")
    if not output.name.endswith(BUNDLE_SUFFIX):
        raise UsageError(f"The output {output} doesn't end in {BUNDLE_SUFFIX}, as bundles do.")
    if not FILE_NAME.fullmatch(output.name):
        raise UsageError(
            f"The output's name {output.name!a} is none that a bundle can have.",
            hint="It is of ASCII letters, digits and . _ + -, and begins with a letter or digit.",
        )
    if may_make_folder:
        with contextlib.suppress(OSError):
            output.parent.mkdir(exist_ok=True)
    if not output.parent.is_dir():
        raise UsageError(
            f"The output's folder {output.parent} isn't there.", hint="Make it, or give another path."
        )
    remove_stale(output.parent)
    # Asked by doing it: root may write anywhere by its modes, but not to every file system.
    with _unnamed(output):
        pass


@contextlib.contextmanager
def _unnamed(output: Path) -> Iterator[Path]:
    """Yield a temporary name in the output's folder, which is gone behind the block."""
    with contextlib.ExitStack() as stack:
        try:
            candidate = stack.enter_context(unnamed(output))
        except OSError as error:
            raise UsageError(
                f"The output's folder {output.parent} is not writable: {error.strerror}."
            ) from error
        yield candidate


def _publish(
    plan: BuildPlan, candidate: Path, packed: Packed, record: bytes, sbom: bytes, report: Reporter
) -> None:
    """Give the bundle and what lies beside it their names.

    The bundle comes last: without it, the rest is only out of date. Where the bundle that was there has
    signatures, they stay with all of its files if these say the same; else they go.
    """
    outputs = Outputs(plan.output)
    name = plan.output.name
    provenance = make_provenance(record)
    outer = outer_sbom(sbom, filename=name, sha256=packed.sha256, size=packed.size)
    signatures = [path for path in outputs.signatures if path.exists()]
    if signatures and is_unchanged(outputs, sha256=packed.sha256, sbom=outer, provenance=provenance):
        report.note(f"It is the bundle that was there: its {_counted(signatures)} and other files stay.")
        return
    publish(
        {
            outputs.record: record,
            outputs.provenance: provenance,
            outputs.sbom: outer,
            outputs.digest: digest_line(packed.sha256, name),
        },
        finished={plan.output: candidate},
        removed=signatures,
    )
    if signatures:
        report.note(
            f"Removed {_counted(signatures)} of the old bundle: sign again with "
            f"'capsule-build sign {plan.output}'."
        )


def _counted(signatures: Sequence[Path]) -> str:
    return f"{len(signatures)} signature{'' if len(signatures) == 1 else 's'}"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _build_tree(plan: BuildPlan, shop: Workshop, context: Context, tree: Path, report: Reporter) -> None:
    log = plan.output.with_name(plan.output.name + LOG_SUFFIX)
    root = plan.manifest.install_root
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        report.log(line)

    try:
        image = shop.engine.build(
            context.folder,
            tag=f"localhost/capsule-build/{plan.recipe.id}:{plan.platform}",
            labels={},
            keep=shop.keep,
            on_line=hear,
        )
    except BuildError as error:
        if shop.keep:
            with atomic_writer(log) as out:
                out.write("".join(f"{line}\n" for line in lines).encode())
            # A note, since the error's own hint says how to look into what else was kept.
            error.add_note(f"The whole log is {log}.")
        raise
    spec = ContainerSpec(image=image, argv=(f"{root}/{plan.manifest.launcher}",))
    with (
        container(shop.engine, spec) as made,
        contextlib.closing(shop.engine.copy_out(made, root)) as stream,
    ):
        collect(stream, tree)


def _smoke(
    plan: BuildPlan, shop: Workshop, inputs: tuple[ReadyInput, ...], bundle: Path, folder: Path
) -> tuple[ToolResult, ...]:
    busybox = next(item.path for item in inputs if item.planned.component == "busybox-static")
    image = smoke.bare_image(shop.engine, busybox, folder)
    results = smoke.run_smoke(shop.engine, image, bundle, plan.recipe)
    smoke.require_passed(results, "an image that holds one static shell")
    return results
