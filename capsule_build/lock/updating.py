"""Writes a registry lock, or checks it.

Two writers at once lose nothing: each reads the file and writes it under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..resources import registry_lock
from ..runtime.errors import CapsuleError, UsageError
from ..runtime.files import write_atomically
from ..runtime.registry import TASK_PLATFORM, Registry, check_tag, load_registry
from .entries import bundles_in, read_entries
from .merging import describe, merged
from .urls import is_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from ..runtime.platforms import Platform
    from ..runtime.registry import Task, Variant
    from .entries import Entry, PassedOver, TaskEntry
    from .merging import Change


@dataclass(frozen=True)
class Update:
    """What became of a lock: what changed in it, and which bundles it doesn't name."""

    changes: tuple[Change, ...]
    passed_over: tuple[PassedOver, ...]


def update_lock(
    path: Path,
    dist: Path,
    *,
    replace_digests: bool = False,
    base_urls: Sequence[str] = (),
    allow_overrides: bool = False,
) -> Update:
    """Bring a registry lock up to date with the bundles in `dist`.

    Args:
        path: The registry lock; it is made if it is missing.
        dist: The folder of bundles.
        replace_digests: Whether a digest may change under an unchanged tag.
        base_urls: Where the bundles can be had from (see `merged`).
        allow_overrides: Whether it is a lock for tests (see `read_entries`). It can't be the project's own.

    Raises:
        UsageError: The lock's folder isn't there, or there is no bundle.
        ContractError: A bundle, or the lock as it is, breaks its format.
        SignatureError: A provenance is about another file.
        CapsuleError: A digest would change, or a bundle was made with overrides, and may not.
    """
    with exclusive(path, allow_overrides=allow_overrides) as place:
        # Read under the lock: what another writer makes of the same folder meanwhile isn't undone.
        entries, passed = read_entries(bundles_in(dist), allow_overrides=allow_overrides)
        data, changes = proposed(place, entries, base_urls=base_urls, replace_digests=replace_digests)
        write_atomically(place, data)
    return Update(tuple(changes), tuple(passed))


def proposed(
    path: Path,
    entries: Iterable[Entry | TaskEntry],
    *,
    base_urls: Sequence[str] = (),
    replace_digests: bool = False,
) -> tuple[bytes, list[Change]]:
    """Return the bytes that a lock will have with some bundles, and what changes in it.

    Raises:
        ContractError: The lock as it is breaks its format.
        CapsuleError: A digest would change under an unchanged tag, and may not.
    """
    regenerated, changes = merged(_registry(path), entries, base_urls)
    moved = [change for change in changes if change.moves]
    if moved and not replace_digests:
        raise CapsuleError(
            f"A digest would change under an unchanged tag:\n{describe(moved)}",
            hint="If that is meant (before a release of that tag it can be), say --replace.",
        )
    return lock_bytes(regenerated), changes


def check_lock(
    path: Path, dist: Path, *, base_urls: Sequence[str] = (), allow_overrides: bool = False
) -> Update:
    """Check that a registry lock is what the bundles in `dist` make of it; nothing is written.

    Raises:
        UsageError: There is no bundle, or `path` is no file.
        ContractError: A bundle, or the lock, breaks its format.
        SignatureError: A provenance is about another file.
        CapsuleError: They differ; the message says in what.
    """
    check_place(path)
    entries, passed = read_entries(bundles_in(dist), allow_overrides=allow_overrides)
    registry = _registry(path)
    regenerated, changes = merged(registry, entries, base_urls)
    data = path.read_bytes() if path.exists() else b""
    wrong = [describe(changes)] if changes else []
    wrong += [f"  {place}: the address {url} isn't one of its file" for place, url in _foreign_urls(registry)]
    if not wrong and data != lock_bytes(regenerated):
        wrong.append("  its bytes aren't the regenerated ones")
    if wrong:
        raise CapsuleError(
            f"{path} is not what the bundles in {dist} make:\n" + "\n".join(wrong),
            hint="Regenerate it with 'capsule-build lock' (--replace where a digest changes, --base-url "
            "where an address does).",
        )
    return Update((), tuple(passed))


def revoke(path: Path, tag: str, platform: Platform, reason: str) -> Variant:
    """Say in a lock that a bundle must not be used any more.

    The reason stays as long as the digest does, whatever else is written.

    Args:
        path: The registry lock.
        tag: The tag.
        platform: The platform.
        reason: Why: one line for those who asked for the capsule.

    Returns:
        The variant as it is now.

    Raises:
        UsageError: There is no such variant, the reason isn't a line of text, or there is no lock.
        ContractError: The lock breaks its format.
    """
    check_tag(tag)
    said = _reason(path, reason)
    with exclusive(path) as place:
        registry = _registry(place)
        capsule = registry.capsule(tag)
        if platform not in capsule.variants:
            known = ", ".join(sorted(map(str, capsule.variants)))
            raise UsageError(
                f"There is no capsule '{tag}' for {platform}.", hint=f"The registry lock has it for: {known}."
            )
        variant = replace(capsule.variants[platform], revoked=said)
        changed = replace(capsule, variants={**capsule.variants, platform: variant})
        write_atomically(place, lock_bytes(replace(registry, capsules={**registry.capsules, tag: changed})))
    return variant


def revoke_task(path: Path, name: str, reason: str) -> Task:
    """Say in a lock that a task bundle must not be used any more, as `revoke` says it of a capsule's.

    Raises:
        UsageError: There is no such task, the reason isn't a line of text, or there is no lock.
        ContractError: The lock breaks its format.
    """
    said = _reason(path, reason)
    with exclusive(path) as place:
        registry = _registry(place)
        task = replace(registry.known_task(name), revoked=said)
        write_atomically(place, lock_bytes(replace(registry, tasks={**registry.tasks, name: task})))
    return task


def _reason(path: Path, reason: str) -> str:
    if not reason.strip() or not reason.isprintable():
        raise UsageError("--reason needs one line of text.", hint="Say what those who have it should do.")
    if not path.is_file():
        raise UsageError(f"The registry lock {path} isn't there.")
    return reason.strip()


def lock_bytes(registry: Registry) -> bytes:
    """Return a lock's one spelling, after a check of all its rules."""
    registry.check()
    return registry.to_bytes()


@contextlib.contextmanager
def exclusive(path: Path, *, allow_overrides: bool = False) -> Iterator[Path]:
    """Hold a registry lock for the time of a block; no other writer touches it meanwhile.

    Args:
        path: The registry lock. It need not be there, its folder must.
        allow_overrides: Whether bundles that weren't made of their pins may get into it.

    Yields:
        The file to write: where `path` is a symlink, what it points to.

    Raises:
        UsageError: It can't be a lock, or is the project's own where that may not be.
    """
    place = writable_place(path, allow_overrides=allow_overrides)
    with _held(place.with_name(f".{place.name}.lock")):
        yield place


def writable_place(path: Path, *, allow_overrides: bool = False) -> Path:
    """Return the file to write for a registry lock, before any work is done for it.

    Raises:
        UsageError: It can't be a lock (see `check_place`), or its folder isn't there or can't be written to.
    """
    check_place(path, allow_overrides=allow_overrides)
    place = _resolved(path)
    if not place.parent.is_dir():
        raise UsageError(
            f"The folder of {path} isn't there.", hint="Make it, or name another file: --lock FILE."
        )
    if not os.access(place.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise UsageError(
            f"The folder of {path} can't be written to.",
            hint="A registry lock is written beside itself and renamed. Name another file: --lock FILE.",
        )
    return place


def check_place(path: Path, *, allow_overrides: bool = False) -> None:
    """Check that a path can be a registry lock's, before any work is done for it.

    Raises:
        UsageError: It can't, or is the project's own where bundles with overrides may get into it.
    """
    if not path.name:
        raise UsageError("--lock needs the path of a file.")
    if path.exists() and not path.is_file():
        raise UsageError(f"The registry lock {path} is not a file.")
    if allow_overrides and _resolved(path) == registry_lock().resolve():
        raise UsageError(
            "The project's own registry lock names no bundle that was made with overrides.",
            hint="Name another file with --lock: a lock for tests.",
        )


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold the file that writers of a registry lock wait for. It may be another user's; nothing is in it."""
    flags = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, os.O_RDWR | flags, 0o644)
    except PermissionError:
        handle = os.open(path, os.O_RDONLY | flags, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError:
        raise UsageError(f"The registry lock {path} is a symlink that leads back to itself.") from None


def _registry(path: Path) -> Registry:
    return load_registry(path) if path.exists() else Registry({})


def _foreign_urls(registry: Registry) -> Iterator[tuple[str, str]]:
    for tag, capsule in registry.capsules.items():
        for platform, variant in capsule.variants.items():
            for url in variant.urls:
                if not is_of(url, variant.filename):
                    yield f"{tag} {platform}", url
    for name, task in registry.tasks.items():
        for url in task.urls:
            if not is_of(url, task.filename):
                yield f"{name} {TASK_PLATFORM}", url
