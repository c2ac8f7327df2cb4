"""What a probe found out about an environment, and whether a capsule can be installed there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .errors import TargetError
from .layout import CAPSULES
from .platforms import ARCHITECTURES, Platform
from .scripts import NEEDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .elf import Program
    from .layout import Mark
    from .manifest import Manifest

SHELL: Final = "/bin/sh"


@dataclass(frozen=True)
class Folder:
    """A folder whose name is predictable: what it is, whose, and its mode as `ls` shows it."""

    path: str
    mode: str
    owner: int

    def refused(self, user: int) -> str | None:
        """Return why it isn't used; `None` if it may be."""
        if self.mode[0] != "d":
            return f"'{self.path}' is {'a symlink' if self.mode[0] == 'l' else 'not a folder'}"
        if self.owner not in (user, 0):
            return f"'{self.path}' belongs to the user {self.owner}"
        if self.mode[5] == "w" or self.mode[8] == "w":
            return f"'{self.path}' is writable by others ({self.mode})"
        return None


@dataclass(frozen=True)
class Present:
    """A capsule that is installed."""

    mark: Mark
    manifest: Manifest
    is_finished: bool
    """Whether its root has lost its write bits already."""


@dataclass(frozen=True)
class Capsules:
    """What of capsules is in an environment.

    Attributes:
        installed: The installed ones by the name of their root.
        entries: All names in the folder of install roots.
        setups: The digests for which there are setup roots.
        folders: The two folders of capsules and `/tmp`, where they are there.
    """

    installed: Mapping[str, Present]
    entries: tuple[str, ...]
    setups: tuple[str, ...]
    folders: tuple[Folder, ...]


@dataclass(frozen=True)
class Target:
    """What was found in an environment.

    Attributes:
        name: The environment's name.
        program: The ELF head that decided; `None` where there is no program to be read.
        libc: `glibc` or `musl`; `None` if the image's own programs need none, or another one.
        libc_version: Its version, where it says so.
        user: The id of the user that programs run as.
        group: The id of that user's group.
        commands: Which commands are there, of those that can be of use.
        has_shell: Whether there is a `/bin/sh`.
        is_local: Whether its files are reached without any program in it.
        tmp: `there`, `writable`; `creatable` for `/`.
        tmp_options: Mount options of the file system that install roots would lie on; empty: unknown.
        free_bytes: Room there; `None`: unknown.
        capsules_writable: Whether the folder of install roots can be written to; `None`: it isn't there.
        capsules: What of capsules is there.
        notes: What a person should know.
    """

    name: str
    program: Program | None
    libc: str | None
    libc_version: str | None
    user: int
    group: int
    commands: frozenset[str]
    has_shell: bool
    is_local: bool
    tmp: frozenset[str]
    tmp_options: frozenset[str]
    free_bytes: int | None
    capsules_writable: bool | None
    capsules: Capsules
    notes: tuple[str, ...] = field(default=())

    @property
    def platform(self) -> Platform:
        """The platform whose capsules run there.

        Raises:
            TargetError: There is none: another architecture, or nothing that says which.
        """
        if self.program is None:
            raise TargetError(
                f"{self.name}: neither '{SHELL}' nor a loader is there, so its architecture can't be told."
            )
        machine = self.program.machine
        if self.program.bits != 64 or self.program.byte_order != "little" or machine not in ARCHITECTURES:
            raise TargetError(
                f"{self.name}: its programs are {self.program.bits}-bit {machine}; "
                f"capsules are made for 64-bit {' and '.join(ARCHITECTURES)}."
            )
        return Platform(machine, self.libc or "glibc")

    def check(self) -> None:
        """Check that a capsule can be put there, as far as it can be told without one.

        Raises:
            TargetError: It can't; the message says what is in the way.
        """
        self.check_folders()
        if not self.is_local:
            self._check_commands()
        self._check_tmp()

    def check_room(self, needed: int) -> None:
        """Check that there is room for so many bytes, where it is known.

        Raises:
            TargetError: There isn't.
        """
        if self.free_bytes is not None and self.free_bytes < needed:
            raise TargetError(
                f"{self.name}: /tmp has room for {self.free_bytes >> 20} MB, of {-(-needed >> 20)} MB needed."
            )

    def check_folders(self) -> None:
        """Check that the folders with predictable names are this user's own, or root's.

        Raises:
            TargetError: One isn't, is a symlink, or writable by others.
        """
        for folder in self.capsules.folders:
            why = folder.refused(self.user) if folder.path != "/tmp" else None  # noqa: S108
            if why:
                raise TargetError(
                    f"{self.name}: {why}. Anybody can make that name in /tmp, so it isn't trusted.",
                    hint="Have it removed.",
                )

    def _check_commands(self) -> None:
        if not self.has_shell:
            raise TargetError(
                f"{self.name}: there is no '{SHELL}', which installing needs.",
                hint="Take an image with a shell; one static busybox is enough.",
            )
        missing = [name for name in NEEDED if name not in self.commands]
        if missing:
            raise TargetError(
                f"{self.name}: commands that installing needs are missing: {', '.join(missing)}.",
                hint="A static busybox in its PATH has them all.",
            )

    def _check_tmp(self) -> None:
        if "ro" in self.tmp_options:
            raise TargetError(
                f"{self.name}: /tmp is read-only.", hint="Mount a writable folder or a tmpfs with exec there."
            )
        if "noexec" in self.tmp_options:
            raise TargetError(
                f"{self.name}: /tmp is mounted noexec: no program can run from it.",
                hint="Mount it with exec (Docker: --tmpfs /tmp:exec).",
            )
        if self.capsules_writable is not None:
            if not self.capsules_writable:
                raise TargetError(f"{self.name}: the user {self.user} can't write to '{CAPSULES}'.")
        elif "writable" not in self.tmp and ("there" in self.tmp or "creatable" not in self.tmp):
            what = "can't write to /tmp" if "there" in self.tmp else "can't make /tmp, which is not there"
            raise TargetError(f"{self.name}: the user {self.user} {what}.")
