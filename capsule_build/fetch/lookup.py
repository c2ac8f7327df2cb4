"""Versions that no pin names: one that was asked for, or the current one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from ..pins import Pin
from ..runtime.errors import UsageError
from ..runtime.files import sha256_file
from . import debian, github, npm, pypi
from .transfer import NoVersionError, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..components import Component
    from .cache import Cache
    from .found import Found


def look_up(component: Component, target: str, version: str, *, cache: Cache) -> Pin:
    """Find a version that isn't pinned, and take it into the cache.

    Its digest is whatever the origin has now: a caller shows it and keeps it in the build record.

    Args:
        component: What is looked for.
        target: One of its targets.
        version: An exact version.
        cache: Where it goes.

    Returns:
        A pin that names what is now in the cache.

    Raises:
        UsageError: There is no such version (the nearest ones are named), or it isn't one, or the component
            has no such target, or versions of its kind can't be chosen.
        InputError: It can't be had.
    """
    if component.kind not in {"pypi", "npm"}:
        raise UsageError(
            f"{component.title} can't be had in another version than the pinned one by its number alone.",
            hint=f"Give your own with --source {component.name}=PATH.",
        )
    try:
        Version(version)
    except InvalidVersion as error:
        raise UsageError(f"'{version}' is not a version of {component.title}.") from error
    try:
        return _resolve(component, target, f"=={version}", cache=cache, known=(), cancelled=threading.Event())
    except NoVersionError as error:
        raise NoVersionError(f"{component.title} {version}", error.nearest) from error


def current(
    component: Component,
    target: str,
    *,
    cache: Cache,
    known: Iterable[Pin] = (),
    cancelled: threading.Event | None = None,
) -> Pin:
    """Find the newest version that a component tracks.

    It is downloaded only where its origin doesn't say its digest and size in a way that can be trusted.

    Args:
        component: What is looked for.
        target: One of its targets.
        cache: Where downloads go.
        known: Pins that save a download if they name the same file.
        cancelled: Set when the look-up is called off.

    Returns:
        A pin that names it.

    Raises:
        UsageError: Nothing fits what the component tracks.
        InputError: It can't be had.
    """
    return _resolve(
        component, target, component.track, cache=cache, known=known, cancelled=cancelled or threading.Event()
    )


def _resolve(
    component: Component,
    target: str,
    wanted: str,
    *,
    cache: Cache,
    known: Iterable[Pin],
    cancelled: threading.Event,
) -> Pin:
    selector = component.selector(target)
    with cache.stage() as folder:
        transfer = Transfer(folder, cancelled=cancelled)
        found = _find(component, selector, wanted, transfer)
        sha256, size = found.sha256, found.size
        for pin in known:
            same = (pin.kind, pin.package, pin.version, pin.file, pin.locator) == (
                component.kind,
                component.package,
                found.version,
                found.file,
                found.locator,
            )
            # A GitHub release is its tag; an npm version never changes. An index of wheels gives digests.
            if same and sha256 in {None, pin.sha256}:
                sha256, size = pin.sha256, pin.size
        if sha256 is not None and size is None and (path := cache.get(sha256, None)):
            size = path.stat().st_size
        if sha256 is None or (size is None and component.kind != "github-release"):
            file = _download(component, found, transfer)
            sha256 = sha256_file(file) if sha256 is None else sha256
            size = cache.adopt(file, sha256).stat().st_size
    return Pin(
        component=component.name,
        target=target,
        kind=component.kind,
        package=component.package,
        version=found.version,
        file=found.file,
        sha256=sha256,
        size=size,
        license=component.license,
        locator=found.locator,
    )


def _find(component: Component, selector: str, wanted: str, transfer: Transfer) -> Found:
    if component.kind == "pypi":
        return pypi.find(component.package, wanted, selector, transfer)
    if component.kind == "debian":
        return debian.find(component.package, wanted, selector, transfer)
    if component.kind == "npm":
        return npm.find(component.package, wanted, transfer)
    return github.expected(component.version, wanted, selector)


def _download(component: Component, found: Found, transfer: Transfer) -> Path:
    if component.kind == "pypi":
        return pypi.download(component.package, found, transfer)
    if component.kind == "npm":
        return npm.download(component.package, found.version, transfer)
    # Debian's index gives digests and sizes.
    return github.download(component.name, component.package, found.locator, found.file, transfer=transfer)
