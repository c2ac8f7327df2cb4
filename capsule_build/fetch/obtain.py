"""Every input of a build into the cache: the source mirror first, then the pin's own origin."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..runtime.errors import InputError
from . import debian, github, mirror, npm, pypi
from .lookup import current
from .parallel import run_all
from .progress import Silence
from .transfer import NotThereError, Transfer, WrongFileError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ..components import Component
    from ..pins import Pin
    from .cache import Cache
    from .location import Location
    from .progress import Progress


class VanishedError(InputError):
    """The origin doesn't have a pinned file any more."""


@dataclass(frozen=True)
class Fetched:
    """An input that is in the cache, checked.

    Attributes:
        asked: The pin that was asked for.
        taken: The pin of what is here: the same, unless a newer one was allowed and had to be taken.
        path: The file.
    """

    asked: Pin
    taken: Pin
    path: Path

    @property
    def overridden(self) -> bool:
        """Whether something else than the pinned file was taken; a build record says so."""
        return self.taken != self.asked


def fetch_all(
    pins: Iterable[Pin],
    *,
    cache: Cache,
    components: Mapping[str, Component],
    progress: Progress | None = None,
    newer: bool = False,
) -> dict[Pin, Fetched]:
    """Have all inputs in the cache, several at a time.

    Args:
        pins: The inputs. Those with one digest are fetched once.
        cache: Where they go.
        components: Where a newer version would come from.
        progress: Who is told.
        newer: Whether the suite's current version may be taken for a Debian package whose pinned version is
            gone from the mirror. It is said by `Progress.note`.

    Returns:
        For each pin what was taken.

    Raises:
        VanishedError: A pinned file is gone from its origin, and no newer one was allowed.
        WrongFileError: An origin has another file than the pinned one.
        InputError: An input can't be had for another reason; the first one that failed is named.
        UsageError: A variable names a mirror or keyring that isn't one.
    """
    cancelled = threading.Event()
    groups: dict[str, list[Pin]] = {}
    for pin in pins:
        groups.setdefault(pin.sha256, []).append(pin)
    job = _Job(cache, components, progress or Silence(), newer, mirror.source_mirror(), cancelled)
    try:
        first = run_all([functools.partial(job.obtain, group[0]) for group in groups.values()], cancelled)
    except BaseException:
        # A job that waits for a silent server doesn't end in time; nothing of it stays all the same.
        for folder in list(job.folders):
            cache.abandon(folder)
        raise
    result = {}
    for fetched, group in zip(first, groups.values(), strict=True):
        for pin in group:
            shared = replace(fetched.taken, component=pin.component, target=pin.target, license=pin.license)
            result[pin] = Fetched(pin, shared if fetched.overridden else pin, fetched.path)
    return result


@dataclass(frozen=True)
class _Job:
    cache: Cache
    components: Mapping[str, Component]
    progress: Progress
    newer: bool
    place: Location | None
    cancelled: threading.Event
    folders: set[Path] = field(default_factory=set)
    """Where downloads are going on."""

    def obtain(self, pin: Pin) -> Fetched:
        if path := self.cache.get(pin.sha256, pin.size, say=self.progress.note):
            return Fetched(pin, pin, path)
        self.progress.started(pin)
        try:
            fetched = Fetched(pin, pin, self._download(pin))
        except VanishedError:
            if not (self.newer and pin.kind == "debian" and pin.component in self.components):
                raise
            fetched = self._newer(pin)
        self.progress.finished(pin)
        return fetched

    def _newer(self, pin: Pin) -> Fetched:
        component = self.components[pin.component]
        taken = current(component, pin.target, cache=self.cache, cancelled=self.cancelled)
        self.progress.note(
            f"{pin.label}: {pin.version} is gone from the mirror; {taken.version}, the current one of "
            f"{component.track} by its signed index, is taken in its place."
        )
        return Fetched(pin, taken, self.cache.get(taken.sha256, taken.size) or self._download(taken))

    def _download(self, pin: Pin) -> Path:
        with self.cache.stage() as folder:
            self.folders.add(folder)
            try:
                return self._download_into(folder, pin)
            finally:
                self.folders.discard(folder)

    def _download_into(self, folder: Path, pin: Pin) -> Path:
        transfer = Transfer(folder, functools.partial(self.progress.advanced, pin), self.cancelled)
        if self.place and (file := mirror.ask(self.place, pin, transfer, self.progress.note)):
            try:
                return self.cache.adopt(file, pin.sha256, pin.size)
            except WrongFileError as error:
                self.progress.note(
                    f"The source mirror {self.place} has another file for {pin.label}; its origin is "
                    f"asked. {error.message}"
                )
        try:
            return self.cache.adopt(from_origin(pin, transfer), pin.sha256, pin.size)
        except WrongFileError as error:
            raise WrongFileError(
                f"{pin.label}, {pin.reference}, isn't the pinned file: {error.message}",
                hint="It was cut or changed on the way, or replaced at its origin. Try again; if it "
                "stays so, find out why before you change the pin, or name a source that has the right "
                f"file with {mirror.VARIABLE}.",
            ) from error


def from_origin(pin: Pin, transfer: Transfer) -> Path:
    """Download a pinned file from its origin. Its digest is not checked here.

    Raises:
        VanishedError: The origin doesn't have it.
        InputError: It can't be had.
    """
    try:
        if pin.kind == "pypi":
            return pypi.fetch(pin, transfer)
        if pin.kind == "debian":
            return debian.fetch(pin, transfer)
        if pin.kind == "npm":
            return npm.download(pin.package, pin.version, transfer, pin.size)
        return github.download(
            pin.component, pin.package, pin.locator, pin.file, transfer=transfer, size=pin.size
        )
    except NotThereError as error:
        ways = (
            f"name a folder or URL that has it by digest with {mirror.VARIABLE} ('capsule-build pins export')"
        )
        if pin.kind == "debian":
            hint = (
                "A Debian mirror drops a version when a newer one comes. Build with --newer-pins to take the "
                f"current one, or move the pin with 'capsule-build pins update --write {pin.component}', or "
                f"{ways}."
            )
        else:
            hint = f"Give your own with --source {pin.component}=PATH, or {ways}."
        raise VanishedError(f"{pin.label}, {pin.reference}, is gone: {error.message}", hint=hint) from error
