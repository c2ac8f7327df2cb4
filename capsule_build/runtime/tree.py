"""What a bundle's members are together: one tree, without two meanings and without a way out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .limits import MAX_LINK_HOPS, MAX_LINK_STEPS, MAX_MEMBERS
from .names import check_name, check_target, fold
from .rules import BundleError, Rule
from .tarheaders import Kind, Member

if TYPE_CHECKING:
    from collections.abc import Iterator

EXECUTABLE_MODE = 0o755
PLAIN_MODE = 0o644

_MODES = {
    Kind.FILE: (EXECUTABLE_MODE, PLAIN_MODE),
    Kind.DIRECTORY: (EXECUTABLE_MODE,),
    # Linux ignores a symlink's mode; archivers write what the file system says, or what they normalise to.
    Kind.SYMLINK: (0o777, EXECUTABLE_MODE, PLAIN_MODE),
}


class Tree:
    """The members seen so far. What a member may be depends on those before it; links on all of them."""

    def __init__(self) -> None:
        self._modes: dict[str, int] = {}
        self._folders: set[str] = set()
        self._links: dict[str, str] = {}
        self._folded: set[str] = set()
        self._mtime: int | None = None
        self._steps = 0

    def __len__(self) -> int:
        return len(self._folded)

    def add(self, member: Member) -> None:
        """Take a member in.

        Raises:
            BundleError: Its name, kind, mode or time breaks a rule, by itself or beside the others.
        """
        if len(self._folded) >= MAX_MEMBERS:
            raise BundleError(
                Rule.MEMBER_COUNT,
                f"it comes after {MAX_MEMBERS} others, the most allowed.",
                member=member.name,
            )
        check_name(member.name)
        self._check_values(member)
        folded = fold(member.name)
        if folded in self._folded:
            raise BundleError(
                Rule.DUPLICATE,
                "another member has the same name, also when case is ignored.",
                member=member.name,
            )
        self._check_parent(member.name)
        # Where folding changes nothing one string serves both collections: names are most of the memory.
        self._folded.add(member.name if folded == member.name else folded)
        if member.kind is Kind.DIRECTORY:
            self._folders.add(member.name)
        elif member.kind is Kind.SYMLINK:
            check_target(member.name, member.target)
            self._links[member.name] = member.target
        else:
            self._modes[member.name] = member.mode

    def check_links(self) -> None:
        """Check every symlink against the whole tree; call it when all members are in.

        A symlink may point at nothing: then it must not leave the tree as far as it can be followed.

        Raises:
            BundleError: One leaves the tree, or never ends.
        """
        for name in self._links:
            self._follow(name, name)

    def executable(self, path: str) -> bool:
        """Return whether a path leads, also through symlinks, to a file that can be run."""
        return self._modes.get(self._follow(path, path)) == EXECUTABLE_MODE

    def files_below(self, folder: str) -> Iterator[str]:
        """Yield the names of the regular files below a folder."""
        return (name for name in self._modes if name.startswith(f"{folder}/"))

    def _check_values(self, member: Member) -> None:
        if member.mode not in _MODES[member.kind]:
            allowed = " or ".join(f"{mode:04o}" for mode in _MODES[member.kind])
            raise BundleError(
                Rule.MODE,
                f"its mode is {member.mode:04o}; a {member.kind.value} has {allowed}.",
                member=member.name,
            )
        if member.size and member.kind is not Kind.FILE:
            raise BundleError(
                Rule.CONTENT_SIZE,
                f"a {member.kind.value} of {member.size} bytes can't be.",
                member=member.name,
            )
        if self._mtime is None:
            self._mtime = member.mtime
        if member.mtime != self._mtime:
            raise BundleError(
                Rule.ONE_MTIME,
                f"its time is {member.mtime}, the others' is {self._mtime}.",
                member=member.name,
            )

    def _check_parent(self, name: str) -> None:
        parent = name.rpartition("/")[0]
        if not parent or parent in self._folders:
            return
        if parent in self._links:
            what = "is a symlink"
        elif parent in self._modes:
            what = "is a regular file"
        else:
            what = "has no entry before it"
        raise BundleError(Rule.PARENT_FOLDER, f"its folder '{parent}' {what}.", member=name)

    def _follow(self, path: str, member: str) -> str:
        """Return where a path leads, as the kernel would walk it from the tree's root."""
        reached: list[str] = []
        pending = path.split("/")[::-1]
        hops = 0
        while pending:
            self._steps += 1
            component = pending.pop()
            if component == ".":
                continue
            if component == "..":
                if not reached:
                    raise BundleError(Rule.LINK_INSIDE, "following it leaves the bundle.", member=member)
                reached.pop()
                continue
            reached.append(component)
            target = self._links.get("/".join(reached))
            if target is None:
                continue
            hops += 1
            if hops > MAX_LINK_HOPS or self._steps > MAX_LINK_STEPS:
                raise BundleError(
                    Rule.LINK_LOOP,
                    f"following it takes more than {MAX_LINK_HOPS} symlinks, or too many steps.",
                    member=member,
                )
            reached.pop()
            pending.extend(target.split("/")[::-1])
        return "/".join(reached)
