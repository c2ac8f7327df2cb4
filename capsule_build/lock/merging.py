"""What bundles make of a registry lock: the new one, and what is different in it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ..runtime.registry import TASK_PLATFORM, Capsule, Registry, Variant
from .entries import TaskEntry
from .urls import url_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..runtime.platforms import Platform
    from ..runtime.registry import Task
    from .entries import Entry


@dataclass(frozen=True)
class Change:
    """A bundle that a lock would have, or have otherwise. `None`: it isn't there.

    Attributes:
        tag: The capsule's tag, or the task's name.
        platform: What the bundle is for.
        before: What the lock says of it.
        after: What it would say.
    """

    tag: str
    platform: Platform | str
    before: Variant | Task | None
    after: Variant | Task | None

    @property
    def moves(self) -> bool:
        """Whether who asks for the tag would get another bundle than before, or none."""
        return self.before is not None and (self.after is None or self.after.sha256 != self.before.sha256)

    def lines(self) -> list[str]:
        """Return it in words: the digests, or else the fields that differ."""
        label = f"{self.tag} {self.platform}"
        before = "nothing" if self.before is None else self.before.sha256
        after = "nothing" if self.after is None else self.after.sha256
        if self.before is None or self.after is None or before != after:
            return [f"{label}: {before} -> {after}"]
        values = (
            (field.name, getattr(self.before, field.name), getattr(self.after, field.name))
            for field in fields(self.before)
        )
        return [f"{label}: {name} {old!r} -> {new!r}" for name, old, new in values if old != new]


def merged(
    registry: Registry, entries: Iterable[Entry | TaskEntry], base_urls: Sequence[str] = ()
) -> tuple[Registry, list[Change]]:
    """Return the lock in which bundles stand for their tags, and what changed.

    Variants and tasks that aren't among the bundles stay. A tag has one version: another one takes the old
    one's variants with it. Addresses and a revocation go with the digest.

    Args:
        registry: The lock as it is.
        entries: The bundles.
        base_urls: Where all of them can be had from, in the order to be tried; none: where the lock says.
    """
    capsules, tasks = dict(registry.capsules), dict(registry.tasks)
    for entry in entries:
        if isinstance(entry, TaskEntry):
            lasting = _lasting(
                registry.tasks.get(entry.name), entry.task.filename, entry.task.sha256, base_urls
            )
            tasks[entry.name] = replace(entry.task, **lasting)
            continue
        manifest = entry.info.manifest
        capsule = capsules.get(entry.tag)
        if capsule is None or (capsule.runtime_id, capsule.runtime_version) != (
            manifest.runtime_id,
            manifest.runtime_version,
        ):
            capsule = Capsule(manifest.runtime_id, manifest.runtime_version, tools=(), variants={})
        before = capsule.variants.get(manifest.platform)
        variant = Variant(
            filename=entry.filename,
            sha256=entry.info.sha256,
            size=entry.info.size,
            install_root=manifest.install_root,
            **_lasting(before, entry.filename, entry.info.sha256, base_urls),
        )
        capsules[entry.tag] = replace(
            capsule,
            tools=tuple(sorted(manifest.tools)),
            variants={**capsule.variants, manifest.platform: variant},
        )
    result = Registry(capsules, tasks)
    return result, _changes(registry, result)


def _lasting(
    before: Variant | Task | None, filename: str, sha256: str, base_urls: Sequence[str]
) -> dict[str, Any]:
    """Return what isn't the bundle's own: its addresses, which are given or stay, and its revocation."""
    same = before if before is not None and before.sha256 == sha256 else None
    urls = tuple(url_of(base, filename) for base in base_urls)
    return {
        "urls": urls or (same.urls if same else ()),
        "revoked": same.revoked if same else None,
    }


def _changes(before: Registry, after: Registry) -> list[Change]:
    places = {
        (tag, platform)
        for registry in (before, after)
        for tag, capsule in registry.capsules.items()
        for platform in capsule.variants
    }
    changes = [
        Change(tag, platform, _variant(before, tag, platform), _variant(after, tag, platform))
        for tag, platform in sorted(places, key=lambda place: (place[0], str(place[1])))
    ]
    changes += [
        Change(name, TASK_PLATFORM, before.tasks.get(name), after.tasks.get(name))
        for name in sorted({*before.tasks, *after.tasks})
    ]
    return [change for change in changes if change.before != change.after]


def _variant(registry: Registry, tag: str, platform: Platform) -> Variant | None:
    capsule = registry.capsules.get(tag)
    return None if capsule is None else capsule.variants.get(platform)


def describe(changes: Iterable[Change]) -> str:
    """Return changes as lines for people."""
    return "\n".join(f"  {line}" for change in changes for line in change.lines())
