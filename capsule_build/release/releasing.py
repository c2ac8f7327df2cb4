"""A release: what is missing is built, and then all of it signed and locked, or nothing.

Bundles that were finished stay, whatever fails later: the same release asked for again goes on from them.
Signatures and the lock are written together, when the last signature is made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..build import build, prepare_output
from ..lock import exclusive, proposed, read_entries, writable_place
from ..runtime.errors import CapsuleError, UsageError
from .finished import why_unfinished
from .outputs import Outputs, publish
from .signing import sign_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..build import Reporter, Workshop
    from ..lock import Change
    from ..plan import BuildPlan
    from .signer import Signer


@dataclass(frozen=True)
class Item:
    """A bundle of a release.

    Attributes:
        plan: What a build of it would do.
        why: Why it has to be built, in words that follow "it"; `None`: it is finished.
    """

    plan: BuildPlan
    why: str | None

    @property
    def outputs(self) -> Outputs:
        """The bundle, and what lies beside it."""
        return Outputs(self.plan.output)


@dataclass(frozen=True)
class LockRequest:
    """What a release does to the registry lock.

    Attributes:
        path: The lock.
        base_urls: Where the bundles can be had from, as `lock.parse_base_url` gave them.
        replace_digests: Whether a digest may change under an unchanged tag.
        allow_overrides: Whether it is a lock for tests, which may name bundles with overrides.
    """

    path: Path
    base_urls: Sequence[str] = ()
    replace_digests: bool = False
    allow_overrides: bool = False


@dataclass(frozen=True)
class Release:
    """What became of a release.

    Attributes:
        items: Its bundles, as they were found.
        signer: Who signed them.
        changes: What changed in the lock.
    """

    items: tuple[Item, ...]
    signer: str
    changes: tuple[Change, ...] = field(default=())


class Stage(Protocol):
    """Shows how a release goes on."""

    def building(self, item: Item) -> AbstractContextManager[Reporter]:
        """Show the build of a bundle for the time of a block."""

    def signed(self, bundle: Path) -> None:
        """Hear that the signatures of a bundle are in place, and the lock that names it."""


def survey(plans: Sequence[BuildPlan], templates: Path, *, newer: bool = False) -> tuple[Item, ...]:
    """Return the bundles of a release, and which of them have to be built (see `why_unfinished`).

    Raises:
        UsageError: Two of them would be the same file.
    """
    outputs = [plan.output for plan in plans]
    for output in outputs:
        if outputs.count(output) > 1:
            raise UsageError(f"Two bundles of the release would be {output}.")
    return tuple(Item(plan, why_unfinished(plan, templates, newer=newer)) for plan in plans)


def complete(
    items: Sequence[Item], open_workshop: Callable[[], AbstractContextManager[Workshop]], stage: Stage
) -> None:
    """Build what isn't finished. A build that fails doesn't keep the others from being built.

    Args:
        items: The bundles.
        open_workshop: Gives what builds share; asked only if there is something to build.
        stage: Shows how it goes on.

    Raises:
        CapsuleError: Builds failed; the message names them.
    """
    unfinished = [item for item in items if item.why is not None]
    if not unfinished:
        return
    for item in unfinished:
        prepare_output(item.plan.output, may_make_folder=True)
    failures: list[tuple[Item, CapsuleError]] = []
    with open_workshop() as shop:
        for item in unfinished:
            try:
                with stage.building(item) as report:
                    build(item.plan, shop, report)
            except CapsuleError as error:
                failures.append((item, error))
    if failures:
        raise _failure(failures, len(items))


def require_finished(items: Sequence[Item]) -> None:
    """Check that nothing has to be built.

    Raises:
        CapsuleError: A bundle isn't finished; the message says which ones, and why.
    """
    lines = [f"  {item.plan.output.name} {item.why}" for item in items if item.why is not None]
    if lines:
        raise CapsuleError(
            "What is to be released has to be built first:\n" + "\n".join(lines),
            hint="Without --prebuilt, this command does it.",
        )


def check_request(plans: Sequence[BuildPlan], request: LockRequest) -> None:
    """Check, before any work is done, that the lock can take what was asked for.

    Raises:
        UsageError: The lock, or a file beside a bundle, can't be written; or a bundle will have overrides and
            they aren't allowed.
    """
    writable_place(request.path, allow_overrides=request.allow_overrides)
    for folder in {plan.output.parent for plan in plans}:
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise UsageError(
                f"The folder {folder} can't be written to.", hint="Name another one: --dist DIR."
            )
    for plan in plans:
        own = [item.name for item in plan.inputs if item.pin is None]
        if own and not request.allow_overrides:
            raise UsageError(
                f"{plan.output.name} isn't made of its pins ({', '.join(own)}): no registry lock names it.",
                hint="For a test, name a lock of its own: --allow-overrides --lock FILE.",
            )


def sign_and_lock(
    items: Sequence[Item],
    request: LockRequest,
    open_signer: Callable[[], AbstractContextManager[Signer]],
    stage: Stage,
) -> Release:
    """Sign finished bundles, and put them into the lock: all of them, or none.

    Args:
        items: The bundles, all built.
        request: What becomes of the lock.
        open_signer: Gives what signs.
        stage: Shows how it goes on.

    Raises:
        ContractError: A bundle, or the lock, breaks its format.
        SignatureError: It can't be signed, or a provenance is about another file.
        CapsuleError: A digest would change, or a bundle has overrides, and may not; or a service fails.
    """
    bundles = [item.plan.output for item in items]
    entries, _ = read_entries(bundles, allow_overrides=request.allow_overrides)

    def propose(place: Path) -> tuple[bytes, list[Change]]:
        return proposed(place, entries, base_urls=request.base_urls, replace_digests=request.replace_digests)

    # What the lock refuses should be known before a signature is in a public log.
    propose(request.path)
    signatures: dict[Path, bytes] = {}
    try:
        with open_signer() as signer:
            for bundle in bundles:
                signatures.update(sign_bundle(bundle, signer))
            name = signer.identity
    except CapsuleError as error:
        error.add_note(
            "No signature was written, and the lock is what it was. The same command goes on from here."
        )
        raise
    with exclusive(request.path, allow_overrides=request.allow_overrides) as place:
        # Again, since another writer can have been here meanwhile.
        data, changes = propose(place)
        publish({**signatures, place: data})
    for bundle in bundles:
        stage.signed(bundle)
    return Release(tuple(items), name, tuple(changes))


def _failure(failures: Sequence[tuple[Item, CapsuleError]], number: int) -> CapsuleError:
    """Return the error of a release whose builds failed: the one there is, or one that names them all."""
    first = failures[0][1]
    if number == 1:
        return first
    lines = "\n".join(f"  {item.plan.output.name}: {error.message}" for item, error in failures)
    return CapsuleError(
        f"{len(failures)} of {number} bundles couldn't be built, so nothing is released:\n{lines}",
        hint=first.hint,
    )
