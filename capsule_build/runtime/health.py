"""What of this machine environments are reached by: the engines' commands, the registry lock, the store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from . import process
from .errors import CapsuleError
from .registry import Resolved, ResolvedTask, load_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .registry_parts import Wanted
    from .store import Store

ENGINES: Final = ("docker", "podman")
_ASK_SECONDS: Final = 30.0
_SERVER: Final = {"docker": "{{.Server.Version}}", "podman": "{{.Client.Version}}"}
"""Podman needs no server: its own version is what counts."""


class Check(NamedTuple):
    """One thing that was looked at: its name, whether it holds, what was found, and what to do about it.

    `warn`: something can't be used that is only needed by those who ask for it.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str | None = None


def examine(lock: Path, store: Store) -> list[Check]:
    """Look at what installing capsules needs on this machine. Nothing is changed.

    Args:
        lock: The registry lock.
        store: The store of bundles.
    """
    return [*map(_engine, ENGINES), _registry(lock), _store(store), *_bundles(lock, store)]


def _engine(name: str) -> Check:
    try:
        done = process.run([name, "version", "--format", _SERVER[name]], timeout=_ASK_SECONDS)
    except process.ProgramMissingError:
        return Check(
            name, "warn", f"The command '{name}' isn't installed.", f"Needed for environments '{name}:NAME'."
        )
    except CapsuleError as error:
        return Check(
            name, "warn", error.message, f"Environments '{name}:NAME' can't be reached until it answers."
        )
    return Check(name, "ok", f"{name.capitalize()} {done.text.strip()}, for environments '{name}:NAME'.")


def _registry(lock: Path) -> Check:
    try:
        registry = load_registry(lock)
    except CapsuleError as error:
        return Check("registry lock", "fail", error.message, error.hint)
    names = [*sorted(registry.capsules), *sorted(registry.tasks)]
    return Check("registry lock", "ok", f"{lock} names {', '.join(names) or 'nothing'}.")


def _store(store: Store) -> Check:
    folder = store.folder
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not os.access(nearest, os.W_OK):
        advice = "Take another one with --data-dir; what is there already can be used."
        return Check("store", "warn", f"{folder} can't be written to.", advice)
    return Check("store", "ok", f"{folder} has or can take bundles.")


def _bundles(lock: Path, store: Store) -> Iterator[Check]:
    """Say of each bundle for this architecture whether it can be had: containers may be of either libc."""
    try:
        registry = load_registry(lock)
    except CapsuleError:
        return
    for tag, capsule in sorted(registry.capsules.items()):
        for platform, variant in sorted(capsule.variants.items()):
            if platform.architecture == os.uname().machine and variant.revoked is None:
                yield _bundle(store, Resolved(tag, platform, capsule, variant))
    for name, task in sorted(registry.tasks.items()):
        if task.revoked is None:
            yield _bundle(store, ResolvedTask(name, task))


def _bundle(store: Store, resolved: Wanted) -> Check:
    name = f"{resolved.tag} for {resolved.platform}"
    try:
        if store.has(resolved):
            return Check(name, "ok", "Its bundle is in the store.")
    except CapsuleError as error:
        return Check(name, "fail", error.message, error.hint)
    if resolved.variant.urls:
        return Check(name, "ok", "Its bundle is not in the store yet, and can be downloaded.")
    missing = store.missing(resolved)
    return Check(name, "warn", missing.message, missing.hint)
