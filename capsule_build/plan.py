"""What a build will do, decided before anything is done: no network, no engine, no clock.

All that does something (fetch, render, engine, pack) takes the plan that is made here.
"""

from __future__ import annotations

import contextlib
import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .recipes import check_libc
from .runtime.errors import InputError, UsageError
from .runtime.manifest import Manifest, install_root
from .runtime.platforms import Platform

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .pins import Pin, PinSet
    from .recipes import Recipe, RuntimeChoice

LAUNCHER: Final = "bin/capsule-exec"
MAX_EPOCH: Final = 0o77777777777
"""The largest time in a tar header: eleven octal digits (POSIX ustar)."""


class Role(enum.Enum):
    """What an input is for."""

    RUNTIME = "runtime"
    """A runtime that the capsule is named for."""
    SHIPPED = "shipped"
    """Files of it are in the bundle."""
    LINKED = "linked"
    """It is linked statically into the capsule's own tools."""
    LICENCES = "licences"
    """Only licence texts are taken from it."""
    TEXTS = "texts"
    """The licence texts of what a runtime's upstream linked into it."""
    SPDX = "spdx"
    """The texts of the SPDX licence list, for what comes without a text of its own."""
    BUILD = "build"
    """It runs in the build, on the build machine's architecture, and leaves nothing in the bundle."""


@dataclass(frozen=True)
class BuildOptions:
    """What a user asked for.

    Attributes:
        libc: The C library of the images that the capsule is for.
        architecture: Their architecture.
        build_architecture: The architecture that the engine's containers run on.
        versions: Exact versions asked for, by the runtime's name.
        sources: Files or folders that take a pin's place, by the input's name.
        epoch: The modification time of all members, in seconds since 1970; `None`: the pins' own.
        output: The bundle's path; `None`: named after the capsule in `dist`.
    """

    libc: str
    architecture: str
    build_architecture: str
    versions: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Path] = field(default_factory=dict)
    epoch: int | None = None
    output: Path | None = None


@dataclass(frozen=True)
class PlannedInput:
    """One input of a build.

    Attributes:
        name: What users call it; for all but some runtimes the component's own name.
        component: Its name in components.toml.
        role: What it is for.
        platform: The platform whose variant of it is taken.
        version: The version asked for.
        file: The name that its file has in the build: its pin's; empty where there is no pin.
        pin: The pin that it comes by; `None` where an unpinned version must be looked up, or where
            `source` takes its place.
        source: The user's own file or folder.
    """

    name: str
    component: str
    role: Role
    platform: Platform
    version: str
    file: str
    pin: Pin | None
    source: Path | None = None

    @property
    def key(self) -> str:
        """A name for it among the build's inputs: a component can be shipped and run in the build."""
        return f"build/{self.name}" if self.role is Role.BUILD else self.name


@dataclass(frozen=True)
class BuildPlan:
    """What a build will do.

    Attributes:
        recipe: The recipe.
        options: What the user asked for.
        manifest: The bundle's manifest, as it will be written.
        inputs: Everything that the build takes in, in the recipe's order.
        versions: The chosen version of each runtime, by its name.
        output: The bundle's path.
        epoch: The modification time of all members, in seconds since 1970.
    """

    recipe: Recipe
    options: BuildOptions
    manifest: Manifest
    inputs: tuple[PlannedInput, ...]
    versions: Mapping[str, str]
    output: Path
    epoch: int

    @property
    def platform(self) -> Platform:
        """The platform that the capsule is for."""
        return self.manifest.platform

    @property
    def overrides(self) -> tuple[PlannedInput, ...]:
        """The inputs that the user's own files take the place of."""
        return tuple(item for item in self.inputs if item.source is not None)


def make_plan(recipe: Recipe, options: BuildOptions, pins: PinSet, *, dist: Path) -> BuildPlan:
    """Decide what a build of `recipe` will do.

    Args:
        recipe: The recipe.
        options: What the user asked for.
        pins: The pinned inputs.
        dist: The folder for an output that isn't named.

    Raises:
        UsageError: A libc, version or source that this recipe can't take.
        InputError: A component has no pin for the platform.
    """
    platform = Platform(options.architecture, check_libc(recipe, options.libc))
    choices = {choice.name: choice for choice in recipe.runtimes}
    unknown = set(options.versions) - set(choices)
    if unknown:
        raise UsageError(f"{recipe.id} has no {', '.join(sorted(unknown))} whose version could be chosen.")
    defaults: dict[str, str] = {}
    versions: dict[str, str] = {}
    for name, choice in choices.items():
        pin = _runtime_pin(choice, options, pins, platform)
        if pin is not None:
            defaults[name] = pin.version
        asked = options.versions.get(name, defaults.get(name))
        if asked is None:
            raise UsageError(
                f"--source {name}=... on {platform} needs {choice.option}: no pin says a version there."
            )
        versions[name] = choice.check(asked)
    inputs = tuple(_inputs(recipe, options, pins, platform, versions))
    _check_sources(options.sources, inputs)

    version = _capsule_version(recipe, versions, defaults)
    epoch = pins.epoch if options.epoch is None else options.epoch
    if not 0 <= epoch <= MAX_EPOCH:
        raise UsageError(
            f"--epoch {epoch} is not between 0 and {MAX_EPOCH}, the last second that a tar can name."
        )
    manifest = Manifest(
        runtime_id=recipe.id,
        runtime_version=version,
        platform=platform,
        install_root=install_root(recipe.id, version, platform),
        launcher=LAUNCHER,
        tools=dict(recipe.tools),
    )
    manifest.check()
    standard = versions == defaults
    name = default_name(recipe, platform) if standard else f"{recipe.id}-{version}-{platform}.tar.gz"
    return BuildPlan(
        recipe=recipe,
        options=options,
        manifest=manifest,
        inputs=inputs,
        versions=versions,
        output=options.output or dist / name,
        epoch=epoch,
    )


def default_name(recipe: Recipe, platform: Platform) -> str:
    """Return the file name of the bundle that a tag stands for."""
    return f"{recipe.tag}-{platform}.tar.gz"


def _inputs(
    recipe: Recipe, options: BuildOptions, pins: PinSet, platform: Platform, versions: Mapping[str, str]
) -> Iterator[PlannedInput]:
    builder = Platform(options.build_architecture, options.libc)
    for choice in recipe.runtimes:
        source = _source_of(choice, options.sources)
        pin = _runtime_pin(choice, options, pins, platform)
        version = versions[choice.name]
        pinned = source is None and pin is not None and version == pin.version
        yield PlannedInput(
            name=choice.name,
            component=choice.component,
            role=Role.RUNTIME,
            platform=platform,
            version=version,
            file=pin.file if pinned and pin is not None else "",
            pin=pin if pinned else None,
            source=source,
        )
        own_texts = options.sources.get(choice.texts) if choice.texts else None
        texts = _texts_pin(choice, pins, platform)
        # The pinned texts are those of one exact build: they don't go with another one.
        if own_texts is not None or (pinned and texts is not None):
            yield PlannedInput(
                name=f"{choice.name}/{Role.TEXTS.value}",
                component=choice.texts,
                role=Role.TEXTS,
                platform=platform,
                version=version,
                file="",
                pin=texts if own_texts is None else None,
                source=own_texts,
            )
    roles = (
        (Role.SHIPPED, recipe.shipped, platform),
        (Role.LINKED, recipe.linked, platform),
        (Role.LICENCES, recipe.licences, platform),
        (Role.SPDX, (recipe.spdx,) if recipe.spdx else (), platform),
        (Role.BUILD, recipe.build, builder),
    )
    for role, components, where in roles:
        for component in components:
            # The build's own tools are never replaced: a source stands in for what is shipped.
            source = None if role is Role.BUILD else options.sources.get(component)
            pin = pins.find(component, where)
            yield PlannedInput(
                name=component,
                component=component,
                role=role,
                platform=where,
                version=pin.version,
                file=pin.file,
                pin=pin if source is None else None,
                source=source,
            )


def _source_of(choice: RuntimeChoice, sources: Mapping[str, Path]) -> Path | None:
    """Return the user's own file for a runtime, by the name that users have for it or by its component's."""
    names = {choice.name, choice.component} & set(sources)
    if len(names) > 1:
        raise UsageError(f"--source {' and --source '.join(sorted(names))} name the same input.")
    return sources[names.pop()] if names else None


def _runtime_pin(
    choice: RuntimeChoice, options: BuildOptions, pins: PinSet, platform: Platform
) -> Pin | None:
    """Return a runtime's pin. There may be none for a platform, which matters only without an own source."""
    if _source_of(choice, options.sources) is None:
        return pins.find(choice.component, platform)
    with contextlib.suppress(InputError):
        return pins.find(choice.component, platform)
    return None


def _texts_pin(choice: RuntimeChoice, pins: PinSet, platform: Platform) -> Pin | None:
    """Return the pin of a runtime's licence texts; upstream may publish none for a platform."""
    if not choice.texts:
        return None
    with contextlib.suppress(InputError):
        return pins.find(choice.texts, platform)
    return None


def _check_sources(sources: Mapping[str, Path], inputs: tuple[PlannedInput, ...]) -> None:
    replaceable = [item for item in inputs if item.role is not Role.BUILD]
    names = [item.component if item.role is Role.TEXTS else item.name for item in replaceable]
    for name in sources:
        # Messages about a pin name the component as the pins do.
        if name not in names and name not in {item.component for item in replaceable}:
            raise UsageError(
                f"--source {name}=...: this recipe has no input of that name.",
                hint=f"Its inputs: {', '.join(names)}.",
            )


def _capsule_version(recipe: Recipe, versions: Mapping[str, str], defaults: Mapping[str, str]) -> str:
    named = [versions[choice.name] for choice in recipe.runtimes if choice.in_version]
    others = [
        f"{choice.name}{versions[choice.name]}"
        for choice in recipe.runtimes
        if not choice.in_version and versions[choice.name] != defaults.get(choice.name)
    ]
    return "-".join(named + others)
