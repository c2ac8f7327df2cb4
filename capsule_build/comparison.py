"""What changed between two bundles: components, licences, files and sizes.

Each is read once, from front to back, and its contract is checked on the way; nothing of it is written.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .inspection import area_of, describe
from .runtime.archive import BundleInfo, Content, Kind, Member, open_bundle
from .sbom.reading import Listed, read_components

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

DIFF_SCHEMA: Final = "capsule-build.diff.v1"
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Change:
    """Something that both bundles have, with what it is in each: versions, or licences."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A member of a bundle. Folders are left out: they follow from what is in them."""

    name: str
    size: int
    what: tuple[str, ...]
    """Its kind, its mode, and its digest or the link's target."""

    def differences(self, other: Entry) -> tuple[str, ...]:
        """Return what differs in another bundle's member of this name: `kind`, `mode`, `content`."""
        pairs = zip(("kind", "mode", "content"), self.what, other.what, strict=True)
        return tuple(word for word, mine, others in pairs if mine != others)


@dataclass(frozen=True)
class Side:
    """One of the two bundles."""

    info: BundleInfo
    components: Mapping[str, tuple[Listed, ...]]
    entries: Mapping[str, Entry]

    @property
    def areas(self) -> dict[str, int]:
        """The unpacked bytes of each part of the bundle."""
        sizes: dict[str, int] = defaultdict(int)
        for entry in self.entries.values():
            sizes[area_of(entry.name)] += entry.size
        return dict(sizes)


@dataclass(frozen=True)
class Comparison:
    """What changed from one bundle to the other."""

    before: Side
    after: Side

    @property
    def same(self) -> bool:
        """Whether the two are the same bytes."""
        return self.before.info.sha256 == self.after.info.sha256

    @property
    def added(self) -> tuple[Listed, ...]:
        """The components that only the second has."""
        return _only_in(self.after, self.before)

    @property
    def removed(self) -> tuple[Listed, ...]:
        """The components that only the first has."""
        return _only_in(self.before, self.after)

    @property
    def versions(self) -> tuple[Change, ...]:
        """The components whose versions differ. Packages of npm can be there in several."""
        return self._changes(lambda part: (part.version,))

    @property
    def licences(self) -> tuple[Change, ...]:
        """The components whose licences differ."""
        return self._changes(lambda part: part.licenses)

    @property
    def files_added(self) -> tuple[Entry, ...]:
        """The files and links that only the second has."""
        return _sorted(entry for name, entry in self.after.entries.items() if name not in self.before.entries)

    @property
    def files_removed(self) -> tuple[Entry, ...]:
        """The files and links that only the first has."""
        return _sorted(entry for name, entry in self.before.entries.items() if name not in self.after.entries)

    @property
    def files_changed(self) -> tuple[tuple[Entry, Entry], ...]:
        """The files and links that both have, and that differ."""
        both = sorted(self.before.entries.keys() & self.after.entries.keys())
        pairs = ((self.before.entries[name], self.after.entries[name]) for name in both)
        return tuple(pair for pair in pairs if pair[0].differences(pair[1]))

    def to_json(self) -> dict[str, object]:
        """Return all of it as JSON values, in the format that `DIFF_SCHEMA` names. Sizes are in bytes."""
        before, after = self.before.areas, self.after.areas
        return {
            "schema_version": DIFF_SCHEMA,
            "same": self.same,
            "before": describe(self.before.info),
            "after": describe(self.after.info),
            "components": {
                "added": [_part(part) for part in self.added],
                "removed": [_part(part) for part in self.removed],
                "changed": [_change(change) for change in self.versions],
            },
            "licenses": [_change(change) for change in self.licences],
            "areas": [
                {"name": name, "before": before.get(name, 0), "after": after.get(name, 0)}
                for name in sorted(before | after)
            ],
            "files": {
                "added": [{"name": entry.name, "bytes": entry.size} for entry in self.files_added],
                "removed": [{"name": entry.name, "bytes": entry.size} for entry in self.files_removed],
                "changed": [
                    {
                        "name": old.name,
                        "before": old.size,
                        "after": new.size,
                        "what": list(old.differences(new)),
                    }
                    for old, new in self.files_changed
                ],
            },
        }

    def _changes(self, facts: Callable[[Listed], tuple[str, ...]]) -> tuple[Change, ...]:
        found = []
        for key in sorted(self.before.components.keys() & self.after.components.keys()):
            old, new = (
                tuple(sorted({fact for part in side.components[key] for fact in facts(part)}))
                for side in (self.before, self.after)
            )
            if old != new:
                found.append(Change(self.after.components[key][0].name, old, new))
        return tuple(found)


def compare_bundles(before: Path, after: Path) -> Comparison:
    """Compare two bundles.

    Raises:
        UsageError: A file can't be read.
        ContractError: A bundle breaks its contract, or its SBOM isn't CycloneDX.
    """
    return Comparison(_side(before), _side(after))


def _side(path: Path) -> Side:
    entries: dict[str, Entry] = {}
    with open_bundle(path) as reader:
        for member, content in reader:
            if member.kind is not Kind.DIRECTORY:
                entries[member.name] = _entry(member, content)
        components: dict[str, list[Listed]] = defaultdict(list)
        for part in read_components(reader.sbom):
            # Of a package that came along the reference has its version: what is before that names it.
            key = part.ref.rpartition("@")[0] if part.came_along else part.ref or part.name
            components[key].append(part)
        return Side(reader.info, {key: tuple(parts) for key, parts in components.items()}, entries)


def _entry(member: Member, content: Content) -> Entry:
    what = member.target
    if member.kind is Kind.FILE:
        digest = hashlib.sha256()
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
        what = digest.hexdigest()
    return Entry(member.name, member.size, (member.kind.name, f"{member.mode:o}", what))


def _only_in(side: Side, other: Side) -> tuple[Listed, ...]:
    keys = sorted(side.components.keys() - other.components.keys())
    return tuple(part for key in keys for part in side.components[key])


def _sorted(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.name))


def _part(part: Listed) -> dict[str, object]:
    return {"name": part.name, "version": part.version, "licenses": list(part.licenses)}


def _change(change: Change) -> dict[str, object]:
    return {"name": change.name, "before": list(change.before), "after": list(change.after)}
