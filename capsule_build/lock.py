"""Regenerates the registry lock from the bundles in a folder.

An entry is made only of a bundle that keeps the contract, lies under the name that its tag has, and whose
build record has its digest and no override. Variants that aren't in the folder stay as they are.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .record import SCHEMA_VERSION as RECORD_SCHEMA
from .record import SUFFIX as RECORD_SUFFIX
from .runtime.archive import check_bundle
from .runtime.errors import CapsuleError, ContractError, UsageError
from .runtime.files import write_atomically
from .runtime.registry import Capsule, Registry, Variant, load_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .runtime.archive import BundleInfo
    from .runtime.platforms import Platform


@dataclass(frozen=True)
class Change:
    """A difference between the lock and the bundles: digests in hexadecimal, `None` where there is none."""

    tag: str
    platform: Platform
    before: str | None
    after: str


@dataclass(frozen=True)
class _Entry:
    tag: str
    info: BundleInfo
    filename: str


def regenerate(registry: Registry, dist: Path) -> tuple[Registry, list[Change]]:
    """Return the lock that the bundles in `dist` make, and what changed.

    Raises:
        UsageError: There is no bundle with a record.
        ContractError: A bundle breaks the contract, or its record doesn't fit it.
        CapsuleError: A bundle was made with overrides.
    """
    capsules = dict(registry.capsules)
    changes = []
    entries = list(_entries(dist))
    if not entries:
        raise UsageError(
            f"{dist} holds no bundle with a build record.", hint="Build one: 'capsule-build all'."
        )
    for entry in entries:
        manifest = entry.info.manifest
        capsule = capsules.get(entry.tag)
        runtime = (manifest.runtime_id, manifest.runtime_version)
        if capsule is None or (capsule.runtime_id, capsule.runtime_version) != runtime:
            # A tag has one version: another one takes the old one's variants with it.
            capsule = Capsule(*runtime, tools=tuple(sorted(manifest.tools)), variants={})
        old = registry.capsules.get(entry.tag)
        before = old.variants.get(manifest.platform) if old else None
        variant = Variant(
            filename=entry.filename,
            sha256=entry.info.sha256,
            size=entry.info.size,
            install_root=manifest.install_root,
            urls=before.urls if before and before.sha256 == entry.info.sha256 else (),
            revoked=before.revoked if before and before.sha256 == entry.info.sha256 else None,
        )
        capsules[entry.tag] = replace(capsule, variants={**capsule.variants, manifest.platform: variant})
        if before is None or before.sha256 != variant.sha256:
            changes.append(
                Change(entry.tag, manifest.platform, before.sha256 if before else None, variant.sha256)
            )
    return Registry(capsules), changes


def update_lock(
    path: Path, dist: Path, *, check: bool = False, replace_digests: bool = False
) -> list[Change]:
    """Bring a registry lock up to date with the bundles in `dist`.

    Two writers at once lose nothing: the file is read and written under a lock of its own.

    Args:
        path: The registry lock; it is made if it is missing.
        dist: The folder of bundles.
        check: Write nothing, and fail when there is a difference.
        replace_digests: Whether a digest may change under an unchanged tag.

    Returns:
        What changed.

    Raises:
        UsageError: The lock's folder isn't there, or there is no bundle.
        CapsuleError: They differ and `check` is set, or a digest would change and may not.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"The registry lock {path} is not a file.")
    if not path.name:
        raise UsageError("--lock needs the path of a file.")
    with contextlib.nullcontext() if check else _exclusive(path):
        registry = load_registry(path) if path.exists() else Registry({})
        regenerated, changes = regenerate(registry, dist)
        moved = [change for change in changes if change.before is not None]
        if check:
            if changes or regenerated.to_bytes() != (path.read_bytes() if path.exists() else b""):
                raise CapsuleError(
                    f"{path} is not what the bundles in {dist} make:\n{describe(changes)}",
                    hint=f"Regenerate it with 'capsule-build lock{' --replace' if moved else ''}'.",
                )
            return changes
        if moved and not replace_digests:
            raise CapsuleError(
                f"A digest would change under an unchanged tag:\n{describe(moved)}",
                hint="If that is meant (before a release of that tag it can be), say --replace.",
            )
        write_atomically(path, regenerated.to_bytes())
    return changes


def describe(changes: list[Change]) -> str:
    """Return changes as lines for people."""
    return (
        "\n".join(
            f"  {change.tag} {change.platform}: {change.before or 'nothing'} -> {change.after}"
            for change in changes
        )
        or "  its bytes aren't the regenerated ones"
    )


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, in a file beside it, for the time of a block."""
    if not path.parent.is_dir():
        raise UsageError(f"The folder of {path} isn't there.")
    with path.with_name(f".{path.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _entries(dist: Path) -> Iterator[_Entry]:
    if not dist.is_dir():
        raise UsageError(f"The folder {dist} isn't there.")
    for bundle in sorted(dist.glob("*.tar.gz")):
        record_path = bundle.with_name(bundle.name + RECORD_SUFFIX)
        if not record_path.is_file():
            raise ContractError(
                f"{bundle} has no build record {record_path.name} beside it.", hint="Build it again."
            )
        record = _record(record_path)
        if bundle.name != record["bundle"]["filename"]:
            raise ContractError(
                f"{bundle} is named {record['bundle']['filename']} in its build record.",
                hint="Give it that name again, or build it again.",
            )
        if bundle.name != f"{record['capsule']['tag']}-{record['capsule']['platform']}.tar.gz":
            # Another version than the tag's: a user's own, which no tag stands for.
            continue
        if record["overrides"]:
            raise CapsuleError(
                f"{bundle} was made with overrides ({', '.join(record['overrides'])}), which no lock names.",
                hint="Build it from its pins, or move it out of the folder.",
            )
        info = check_bundle(bundle)
        if record["bundle"]["sha256"] != info.sha256:
            raise ContractError(
                f"{bundle} is not the file that its build record describes.", hint="Build it again."
            )
        yield _Entry(record["capsule"]["tag"], info, bundle.name)


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
        if record["schema_version"] != RECORD_SCHEMA:
            raise ContractError(f"{path} is a build record of another version: {record['schema_version']!r}.")
        # Looked at here, so that what follows can rely on it.
        _ = (
            record["bundle"]["filename"],
            record["capsule"]["tag"],
            record["capsule"]["platform"],
            record["bundle"]["sha256"],
            record["overrides"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ContractError(f"{path} is not a build record.") from error
    return dict(record)
