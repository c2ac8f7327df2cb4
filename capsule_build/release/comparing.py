"""What differs between two bundles, member by member: for who looks for why a build isn't reproducible.

Unlike `comparison`, which says what changed in what a bundle holds, it also sees folders, times and order:
all that decides its bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..runtime.archive import open_bundle
from ..runtime.files import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ASPECTS: Final = ("kind", "mode", "time", "target", "size", "content")


@dataclass(frozen=True)
class Difference:
    """A member that isn't the same in both.

    Attributes:
        name: Its name.
        aspects: In what it differs: `kind`, `mode`, `time`, `target`, `size`, `content`; or, alone,
            `only in the first` or `only in the second`.
        first: What that is in the first, aspect by aspect.
        second: The same for the second.
    """

    name: str
    aspects: tuple[str, ...]
    first: tuple[str, ...] = ()
    second: tuple[str, ...] = ()

    def line(self) -> str:
        """Return it in words."""
        if not self.first:
            return f"{self.name}: {', '.join(self.aspects)}"
        changes = ", ".join(
            f"{aspect} {old} -> {new}"
            for aspect, old, new in zip(self.aspects, self.first, self.second, strict=True)
        )
        return f"{self.name}: {changes}"


@dataclass(frozen=True)
class Comparison:
    """What differs between two bundles.

    Attributes:
        members: The members that differ, in the order of their names.
        same_order: Whether the members that both have stand in one order.
    """

    members: tuple[Difference, ...]
    same_order: bool

    def lines(self) -> list[str]:
        """Return it in words."""
        found = [difference.line() for difference in self.members]
        if not self.same_order:
            found.append("the members stand in another order")
        return found or ["all members are the same: they are packed otherwise"]


def compare_members(first: Path, second: Path) -> Comparison:
    """Compare the members of two bundles that keep the contract.

    Raises:
        ContractError: One of them doesn't.
    """
    ours, theirs = _members(first), _members(second)
    differences = []
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            differences.append(Difference(name, ("only in the first",)))
        elif name not in ours:
            differences.append(Difference(name, ("only in the second",)))
        elif ours[name] != theirs[name]:
            differing = [
                (aspect, old, new)
                for aspect, old, new in zip(_ASPECTS, ours[name], theirs[name], strict=True)
                if old != new
            ]
            aspects, old, new = zip(*differing, strict=True)
            differences.append(Difference(name, aspects, old, new))
    return Comparison(
        tuple(differences),
        [name for name in ours if name in theirs] == [name for name in theirs if name in ours],
    )


def _members(bundle: Path) -> Mapping[str, tuple[str, ...]]:
    """Return each member's aspects, in the order of the bundle."""
    found = {}
    with open_bundle(bundle) as reader:
        for member, content in reader:
            digest = hashlib.sha256()
            while piece := content.read(CHUNK_BYTES):
                digest.update(piece)
            found[member.name] = (
                member.kind.name.lower(),
                f"{member.mode:04o}",
                str(member.mtime),
                member.target,
                str(member.size),
                f"sha256:{digest.hexdigest()}",
            )
    return found
