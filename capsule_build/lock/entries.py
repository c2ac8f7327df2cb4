"""The bundles of a folder that a registry lock can name.

Each keeps the contract, and its provenance is about it: the same bytes, under this name, and what its
manifest says. A lock is made of what is published, so the build record isn't asked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..release.outputs import BUNDLE_SUFFIX, TASK_SUFFIX, Outputs, digest_line, find_bundles, is_task
from ..release.provenance import read_provenance
from ..release.task_contract import check_task
from ..release.task_provenance import read_task_provenance
from ..runtime.archive import check_bundle
from ..runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from ..runtime.registry import Task
from ..sandbox.artifact import read_artifact_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ..release.provenance import Provenance
    from ..release.statements import Told
    from ..runtime.archive import BundleInfo

P = TypeVar("P", bound="Told")


@dataclass(frozen=True)
class Entry:
    """A bundle that the lock can name."""

    tag: str
    filename: str
    info: BundleInfo


@dataclass(frozen=True)
class TaskEntry:
    """A task bundle that the lock can name."""

    name: str
    task: Task


@dataclass(frozen=True)
class PassedOver:
    """A bundle of the folder that no tag stands for, and why."""

    bundle: Path
    reason: str


def bundles_in(dist: Path) -> list[Path]:
    """Return the bundles of a folder.

    Raises:
        UsageError: The folder isn't there, or holds none.
    """
    if not dist.is_dir():
        raise UsageError(f"The folder {dist} isn't there.")
    found = find_bundles(dist)
    if not found:
        raise UsageError(f"{dist} holds no bundle.", hint="Build one: 'capsule-build all'.")
    return found


def read_entries(
    bundles: Iterable[Path], *, allow_overrides: bool = False
) -> tuple[list[Entry | TaskEntry], list[PassedOver]]:
    """Read bundles, with the provenance beside each.

    Args:
        bundles: The bundles.
        allow_overrides: Whether bundles count that weren't made of their pins, and those of other versions
            than the pinned ones: for a lock that is for tests.

    Raises:
        ContractError: A bundle breaks the contract, has no provenance, or another one stands for its tag too.
        SignatureError: A provenance is about another file.
        CapsuleError: A bundle was made with overrides, and they aren't allowed.
    """
    entries: list[Entry | TaskEntry] = []
    passed: list[PassedOver] = []
    for bundle in bundles:
        if is_task(bundle):
            entries.append(_task_entry(bundle))
            continue
        provenance = _provenance(bundle, read_provenance)
        if bundle.name != f"{provenance.capsule.tag}-{provenance.capsule.platform}{BUNDLE_SUFFIX}":
            if not allow_overrides:
                passed.append(
                    PassedOver(bundle, f"it isn't named as the tag {provenance.capsule.tag} has it")
                )
                continue
        elif provenance.overrides and not allow_overrides:
            raise CapsuleError(
                f"{bundle} was made with overrides ({', '.join(provenance.overrides)}), which no lock names.",
                hint="Build it from its pins, or move it out of the folder. A lock for tests takes it with "
                "--allow-overrides.",
            )
        entries.append(_entry(bundle, provenance))
    _check_together([entry for entry in entries if isinstance(entry, Entry)])
    return entries, passed


def _provenance(bundle: Path, read: Callable[[bytes, str], P]) -> P:
    path = Outputs(bundle).provenance
    if not path.is_file():
        raise ContractError(f"{bundle} has no provenance {path.name} beside it.", hint="Build it again.")
    provenance = read(path.read_bytes(), str(path))
    if provenance.statement.filename != bundle.name:
        raise SignatureError(
            f"{bundle} is named {provenance.statement.filename} in its provenance.",
            hint="Give it that name again, or build it again.",
        )
    return provenance


def _entry(bundle: Path, provenance: Provenance) -> Entry:
    info = check_bundle(bundle)
    _require_about(provenance, Outputs(bundle), info.sha256)
    said, manifest = provenance.capsule, info.manifest
    for name, ours, theirs in (
        (
            "runtime",
            f"{manifest.runtime_id} {manifest.runtime_version}",
            f"{said.runtime.id} {said.runtime.version}",
        ),
        ("platform", str(manifest.platform), said.platform),
        ("install root", manifest.install_root, said.install_root),
    ):
        if ours != theirs:
            raise ContractError(f"{bundle} has the {name} {ours}; its provenance says {theirs}.")
    return Entry(said.tag, bundle.name, info)


def _task_entry(bundle: Path) -> TaskEntry:
    provenance = _provenance(bundle, read_task_provenance)
    data = read_artifact_bytes(str(bundle))
    sha256, outputs = hashlib.sha256(data).hexdigest(), Outputs(bundle)
    _require_about(provenance, outputs, sha256)
    artifact = check_task(outputs, data, provenance, None)
    task = Task(
        filename=bundle.name,
        sha256=sha256,
        size=len(data),
        version=artifact.version,
        language=artifact.guest.language,
        guest_sha256=artifact.guest.sha256,
        policy_sha256=artifact.policy_sha256,
    )
    return TaskEntry(bundle.name.removesuffix(TASK_SUFFIX), task)


def _require_about(provenance: Told, outputs: Outputs, sha256: str) -> None:
    """Raise CapsuleError unless a provenance, and the file with the digest, are about a bundle's bytes."""
    name = outputs.bundle.name
    provenance.statement.require_subject(name, sha256, str(outputs.provenance))
    if outputs.digest.exists() and outputs.digest.read_bytes() != digest_line(sha256, name):
        raise ContractError(
            f"{outputs.digest} doesn't say what {name} is: SHA-256 {sha256}.", hint="Build it again."
        )


def _check_together(entries: Sequence[Entry]) -> None:
    """Raise ContractError where two bundles would stand for one tag in ways that exclude each other."""
    first: dict[str, Entry] = {}
    platforms: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        manifest = entry.info.manifest
        other = platforms.setdefault((entry.tag, str(manifest.platform)), entry)
        if other is not entry:
            raise ContractError(
                f"{other.filename} and {entry.filename} are both {entry.tag} for {manifest.platform}.",
                hint="Move one of them out of the folder.",
            )
        other = first.setdefault(entry.tag, entry)
        if other.info.manifest.runtime_version != manifest.runtime_version:
            raise ContractError(
                f"{other.filename} and {entry.filename} have the tag {entry.tag} and different versions, "
                f"{other.info.manifest.runtime_version} and {manifest.runtime_version}.",
                hint="A tag has one version on all platforms: move one of them out of the folder.",
            )
