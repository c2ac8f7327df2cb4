"""Turns a plan's inputs into verified files: by pin, by look-up, or from the user's own hand."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .fetch import fetch_all, look_up
from .licence_texts import pack_texts
from .plan import Role
from .runtime.files import sha256_file
from .sources import SUFFIXES, stage_source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .components import Component
    from .fetch import Cache, Progress
    from .pins import Pin
    from .plan import BuildPlan, PlannedInput
    from .recipes import RuntimeChoice


class Origin(enum.Enum):
    """Why an input is the file that it is."""

    PIN = "pin"
    LOOK_UP = "look-up"
    """The user asked for a version that isn't pinned: its digest is what it was when it was fetched."""
    NEWER = "newer"
    """Its pin was gone from the mirror, and its current version was allowed to take the place."""
    SOURCE = "source"
    """The user's own file took the pin's place."""


@dataclass(frozen=True)
class ReadyInput:
    """An input with its file.

    Attributes:
        planned: What the plan said of it.
        path: The file to read.
        file: The name that it gets in the build context.
        sha256: The digest of the file as its origin, or the user, gave it.
        size: Its size in bytes.
        origin: Why it is this file.
        reference: Its package and version (`pypi:uv==0.12.10`), or the user's path.
        version: Its version.
        license: Its licence, an SPDX expression.
        pin: The pin that it really came by; `None` for the user's own.
    """

    planned: PlannedInput
    path: Path
    file: str
    sha256: str
    size: int
    origin: Origin
    reference: str
    version: str
    license: str
    pin: Pin | None


def acquire(
    plan: BuildPlan,
    components: Mapping[str, Component],
    *,
    cache: Cache,
    progress: Progress,
    scratch: Path,
    newer: bool = False,
) -> tuple[ReadyInput, ...]:
    """Bring all inputs of a plan onto this machine, and check them.

    Args:
        plan: The plan.
        components: What each component is.
        cache: The content-addressed cache.
        progress: Hears of what is fetched.
        scratch: A folder for what must be converted; it has to outlive the returned inputs.
        newer: Whether the current version may take the place of a pinned Debian one that is gone.

    Raises:
        InputError: An input can't be had, or isn't what its digest says.
        UsageError: A version that doesn't exist, or a source that isn't what is asked for.
    """
    wanted: dict[PlannedInput, tuple[Pin, Origin]] = {}
    for item in plan.inputs:
        if item.pin is not None:
            wanted[item] = (item.pin, Origin.PIN)
        elif item.source is None:
            component = components[item.component]
            pin = look_up(component, component.target_for(item.platform), item.version, cache=cache)
            progress.note(
                f"{pin.label} {pin.version} isn't pinned; the origin's file has SHA-256 {pin.sha256}."
            )
            wanted[item] = (pin, Origin.LOOK_UP)
    fetched = fetch_all(
        [pin for pin, _ in wanted.values()],
        cache=cache,
        components=components,
        progress=progress,
        newer=newer,
    )
    choices = {choice.name: choice for choice in plan.recipe.runtimes}
    ready = []
    for item in plan.inputs:
        if item in wanted:
            pin, origin = wanted[item]
            got = fetched[pin]
            file = got.taken.file
            path = got.path
            if item.role is Role.TEXTS:
                path = pack_texts(path, scratch / f"{item.component}.tar")
                file = path.name
            ready.append(_by_pin(item, got.taken, path, file, Origin.NEWER if got.overridden else origin))
        else:
            staged = _staged(item, choices, scratch)
            ready.append(_by_source(item, staged, components[item.component].license))
    return tuple(ready)


def _staged(item: PlannedInput, choices: Mapping[str, RuntimeChoice], scratch: Path) -> Path:
    if item.role is Role.TEXTS and item.source is not None:
        return pack_texts(item.source, scratch / f"{item.component}.tar")
    return stage_source(item, choices, scratch)


def _by_pin(item: PlannedInput, pin: Pin, path: Path, file: str, origin: Origin) -> ReadyInput:
    return ReadyInput(
        planned=item,
        path=path,
        file=file,
        sha256=pin.sha256,
        size=path.stat().st_size,
        origin=origin,
        reference=pin.reference,
        version=pin.version,
        license=pin.license,
        pin=pin,
    )


def _by_source(item: PlannedInput, staged: Path, licence: str) -> ReadyInput:
    source = item.source
    if source is None:
        raise ValueError(item.name)
    # An installed prefix is a folder: what it is known by is the archive that was made of it.
    given = source if source.is_file() else staged
    # The user's name for it stays out of the Dockerfile: it could hold anything.
    suffix = next(ending for ending in SUFFIXES if staged.name.endswith(ending)) if not item.file else ""
    return ReadyInput(
        planned=item,
        path=staged,
        file=item.file or f"{item.component}{suffix}",
        sha256=sha256_file(given),
        size=given.stat().st_size,
        origin=Origin.SOURCE,
        reference=str(source),
        version=item.version,
        license=licence,
        pin=None,
    )
