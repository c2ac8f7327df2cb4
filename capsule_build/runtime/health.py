"""What of this machine environments are reached by: the engines' commands, the registry lock, the store."""

from __future__ import annotations

import os
import re
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


_SOCKET: Final = re.compile(r"unix://(?P<path>/\S+?)[.;:]?(?:\s|$)")


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
        advice = f"Environments '{name}:NAME' can't be reached until it answers."
        if isinstance(error, process.CommandError) and error.result is not None:
            return Check(name, "warn", _why(name, error.result.error_text.strip()), advice)
        return Check(name, "warn", error.message, advice)
    return Check(name, "ok", f"{name.capitalize()} {done.text.strip()}, for environments '{name}:NAME'.")


def _why(name: str, said: str) -> str:
    """Return why an engine's command failed, in the words that building has for it."""
    socket = _SOCKET.search(said)
    if name == "docker" and socket is not None:
        path = socket["path"]
        if "permission denied" in said:
            return f"Docker is there, but this user may not use its socket {path}."
        if not os.path.lexists(path):
            return f"Docker's daemon is not running: there is no socket {path}."
    return f"{name.capitalize()} doesn't answer: {' '.join(said.split()) or 'it does not say why'}"


def _registry(lock: Path) -> Check:
    try:
        registry = load_registry(lock)
    except CapsuleError as error:
        return Check("registry lock", "fail", error.message, error.hint)
    names = [*sorted(registry.capsules), *sorted(registry.tasks)]
    return Check("registry lock", "ok", f"{lock} names {', '.join(names) or 'nothing'}.")


def _store(store: Store) -> Check:
    folder = store.folder
    # By os.path: pathlib's exists() raises an error where a folder above can't be searched.
    nearest = next(place for place in (folder, *folder.parents) if os.path.exists(place))  # noqa: PTH110
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
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
    found = missing.message
    if not store.path(resolved.variant).exists():
        found = "Its bundle is not in the store, and the registry lock has no URL for it."
    return Check(name, "warn", found, missing.hint)
