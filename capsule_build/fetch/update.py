"""New pins for old ones, and what differs."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pins import Pin, PinSet, dump_pins
from ..runtime.errors import UsageError
from ..runtime.files import write_atomically
from .lookup import current
from .parallel import run_all

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from ..components import Component
    from .cache import Cache


@dataclass(frozen=True)
class Change:
    """What differs for one component and target.

    Attributes:
        old: The old pin; `None` for a new one.
        new: The new pin; `None` for one that is dropped.
    """

    old: Pin | None
    new: Pin | None

    @property
    def label(self) -> str:
        """What changed, in the words of messages."""
        pin = self.new or self.old
        assert pin is not None  # noqa: S101 - one of the two is always there
        return pin.label

    @property
    def suspicious(self) -> bool:
        """Whether other bytes go by the same name: an origin replaced a published file."""
        old, new = self.old, self.new
        return (
            old is not None
            and new is not None
            and (old.reference, old.file) == (new.reference, new.file)
            and old.sha256 != new.sha256
        )


def update(
    components: Mapping[str, Component], pinset: PinSet, names: Collection[str], *, cache: Cache
) -> PinSet:
    """Return the pins as they would be if they were made now.

    Args:
        components: What is wanted.
        pinset: The present pins.
        names: Which components; all, when empty. Then pins of what `components` doesn't name are dropped.
        cache: Where downloads go.

    Raises:
        UsageError: A name is no component's, or nothing fits what a component tracks.
        InputError: An origin can't be asked.
    """
    if unknown := sorted(set(names) - components.keys()):
        raise UsageError(
            f"There is no component named {', '.join(unknown)}.", hint=f"There are {', '.join(components)}."
        )
    chosen = [component for component in components.values() if not names or component.name in names]
    cancelled = threading.Event()
    look_ups = [
        functools.partial(current, component, target, cache=cache, known=pinset.pins, cancelled=cancelled)
        for component in chosen
        for target in component.targets
    ]
    fresh = run_all(look_ups, cancelled)
    replaced = {component.name for component in chosen}
    kept = [pin for pin in pinset.pins if names and pin.component not in replaced]
    return PinSet(pinset.epoch, ()).replace([*kept, *fresh])


def named(pinset: PinSet, names: Collection[str]) -> tuple[Pin, ...]:
    """Return the pins of some components; of all, when `names` is empty.

    Raises:
        UsageError: A name is no pinned component's.
    """
    known = {pin.component for pin in pinset.pins}
    if unknown := sorted(set(names) - known):
        raise UsageError(
            f"No pin names a component {', '.join(unknown)}.", hint=f"Pinned are {', '.join(sorted(known))}."
        )
    return tuple(pin for pin in pinset.pins if not names or pin.component in names)


def write_pins(path: Path, pinset: PinSet) -> None:
    """Write `pins.lock.json`, wholly or not at all.

    Raises:
        UsageError: It can't be written.
    """
    try:
        write_atomically(path, dump_pins(pinset))
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror or error}.",
            hint="Copy the folder of recipes, and name the copy with --recipes DIR.",
        ) from error


def changes(old: PinSet, new: PinSet) -> list[Change]:
    """Return what differs between two sets of pins, by component and target."""
    before, after = ({pin.key: pin for pin in pinset.pins} for pinset in (old, new))
    return [
        Change(before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    ]
