"""What a capsule would meet in an environment, found in one round trip.

Architecture and C library are those of the image's own programs: what `/bin/sh` and the loaders are, read
from their ELF heads. What the machine that asks happens to run on plays no part, nor does what the kernel
says of itself: a 64-bit kernel runs 32-bit images.

An image without a shell is looked into by the engine's copying, where the environment has that.
"""

from __future__ import annotations

import io
import re
import secrets
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .elf import ElfError, Program, read_program
from .environment import OnThisMachine, Readable
from .errors import ContractError, TargetError
from .layout import CAPSULES, MANIFEST, SETUPS, Mark
from .manifest import Manifest, ManifestError
from .platforms import ARCHITECTURES, Platform
from .process import ProgramMissingError
from .scripts import NEEDED, PROBE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .environment import Environment

_SECONDS: Final = 60.0
_SHELL: Final = "/bin/sh"
_LOADERS: Final = (
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux.so.2",
)
_VERSIONS: Final = (
    re.compile(r"release version ([0-9]+\.[0-9]+)"),
    re.compile(r"^Version ([0-9]+(?:\.[0-9]+)+)"),
)
_HEAD_BYTES: Final = 4096
_EITHER: Final = "either variant of a capsule is right, glibc's is taken where there is one."


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
                f"{self.name}: neither '{_SHELL}' nor a loader is there, so its architecture can't be told."
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
                f"{self.name}: there is no '{_SHELL}', which installing needs.",
                hint="Take an image with a shell; one static busybox is enough.",
            )
        missing = [name for name in NEEDED if name not in self.commands]
        if missing:
            raise TargetError(
                f"{self.name}: the commands {', '.join(missing)} are missing, which installing needs.",
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


def probe(environment: Environment) -> Target:
    """Look into an environment. Nothing is changed there.

    Raises:
        TargetError: It can't be looked into.
        EngineError: Its engine can't be reached.
    """
    line = f"-- {secrets.token_hex(16)} "
    try:
        result = environment.run([_SHELL, "-c", PROBE, "probe", line], timeout=_SECONDS)
    except ProgramMissingError:
        return _probe_by_copying(environment)
    if result.code in (126, 127) and not result.stdout:
        return _probe_by_copying(environment)
    if result.code != 0:
        raise TargetError(f"{environment.name}: it can't be looked into: {result.error_text.strip()}")
    return _Findings(environment, result.stdout, line).target()


class _Findings:
    """What the probe's script printed, taken apart."""

    def __init__(self, environment: Environment, printed: bytes, line: str) -> None:
        self._environment = environment
        text, *files = printed.split(f"\n{line}".encode())
        self._said: dict[str, list[str]] = {}
        for entry in text.decode("utf-8", "backslashreplace").split("\n"):
            key, _, value = entry.partition("\t")
            self._said.setdefault(key, []).append(value)
        self._files: dict[str, bytes] = {}
        for item in files:
            path, _, content = item.partition(b"\n")
            self._files.setdefault(path.decode("utf-8", "backslashreplace"), content)

    def target(self) -> Target:
        heads = {path: head for path, head in self._files.items() if not path.startswith(CAPSULES)}
        program, libc, notes = judge({path: _program(head) for path, head in heads.items()})
        return Target(
            name=self._environment.name,
            program=program,
            libc=libc,
            libc_version=self._libc_version(program, libc),
            user=self._number("uid"),
            group=self._number("gid"),
            commands=frozenset(self._all("command")),
            has_shell=True,
            is_local=isinstance(self._environment, OnThisMachine),
            tmp=frozenset(self._all("tmp")),
            tmp_options=self._tmp_options(),
            free_bytes=self._free_bytes(),
            capsules_writable=self._capsules_writable(),
            capsules=self.capsules(),
            notes=notes,
        )

    def capsules(self) -> Capsules:
        folders = tuple(self._folders())
        installed = {}
        modes = dict(value.partition(" ")[::2] for value in self._all("mode"))
        for value in self._all("installed"):
            mark = Mark.parse(value)
            manifest = None if mark is None else self._manifest(mark)
            if mark is not None and manifest is not None:
                installed[mark.name] = Present(mark, manifest, "w" not in modes.get(mark.name, "w")[:10])
        return Capsules(
            installed=installed,
            entries=tuple(self._all("entry")),
            setups=tuple(self._all("setup")),
            folders=folders,
        )

    def _all(self, key: str) -> Sequence[str]:
        return self._said.get(key, ())

    def _number(self, key: str) -> int:
        values = self._all(key)
        if not values or not values[0].isdigit():
            raise TargetError(f"{self._environment.name}: it doesn't say who its user is ({key}).")
        return int(values[0])

    def _folders(self) -> Iterator[Folder]:
        seen = set()
        for value in self._all("folder"):
            path, mode, _, owner, *_ = (*value.split(None, 4), "", "", "", "")
            if path in ("/tmp", CAPSULES, SETUPS) and path not in seen:  # noqa: S108
                seen.add(path)
                if len(mode) < 10 or not owner.isdigit():
                    raise TargetError(f"{self._environment.name}: '{path}' can't be looked at: {value}")
                yield Folder(path, mode, int(owner))

    def _capsules_writable(self) -> bool | None:
        if not any(folder.path == CAPSULES for folder in self._folders()):
            return None
        return "writable" in self._all("capsules")

    def _tmp_options(self) -> frozenset[str]:
        """Return the options of the mount for install roots: of the last one with the longest path."""
        best, found = -1, ""
        for value in self._all("mount"):
            place, _, options = value.partition(" ")
            place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place).rstrip("/")
            if f"{CAPSULES}/".startswith(f"{place}/") and len(place) >= best:
                best, found = len(place), options
        return frozenset(found.split(",")) - {""}

    def _free_bytes(self) -> int | None:
        for value in reversed(self._all("room")):
            # The device may hold blanks: numbers are counted from the percentage.
            found = re.search(r" ([0-9]+) +[0-9]+% ", value)
            if found:
                return int(found[1]) * 1024
        return None

    def _libc_version(self, program: Program | None, libc: str | None) -> str | None:
        if program is None or libc is None:
            return None
        found: dict[str, str] = {}
        for value in self._all("version"):
            path, _, text = value.partition(" ")
            for form in _VERSIONS:
                version = form.search(text)
                if version and ("musl" in path) == (libc == "musl"):
                    found.setdefault(path, version[1])
        own = [version for path, version in found.items() if program.machine in path]
        return next(iter(own or found.values()), None)

    def _manifest(self, mark: Mark) -> Manifest | None:
        """Return an installed capsule's manifest; `None` if it was removed between two looks."""
        path = f"{CAPSULES}/{mark.name}/{MANIFEST}"
        if path not in self._files:
            return None
        try:
            return Manifest.from_bytes(self._files[path])
        except ManifestError as error:
            raise ContractError(f"{self._environment.name}: '{path}': {error.message}") from error


def judge(programs: Mapping[str, Program | None]) -> tuple[Program | None, str | None, tuple[str, ...]]:
    """Tell architecture and C library from the heads of an image's shell and loaders.

    Returns:
        The head that decides the architecture, the C library, and what should be said of it.
    """
    shell = programs.get(_SHELL)
    others = {path: program for path, program in programs.items() if path != _SHELL and program is not None}
    program = (
        shell
        or next((one for one in others.values() if one.bits == 64), None)
        or next(iter(others.values()), None)
    )
    if program is None:
        return None, None, ()
    if shell is not None and shell.interpreter is not None:
        libc = _libc_of(shell.interpreter)
        note = f"Its programs ask for the loader '{shell.interpreter}', which is neither glibc's nor musl's"
        return program, libc, () if libc else (f"{note}: {_EITHER}",)
    libcs = {
        libc
        for path, other in others.items()
        if other.machine == program.machine and other.bits == program.bits and (libc := _libc_of(path))
    }
    if len(libcs) == 1:
        return program, libcs.pop(), ()
    if libcs:
        return program, "glibc", ("Its shell is static, and both C libraries are there: glibc's is taken.",)
    return program, None, (f"Its programs are static, and it has no C library of its own: {_EITHER}",)


def _libc_of(loader: str) -> str | None:
    name = loader.rpartition("/")[2]
    if name.startswith("ld-musl-"):
        return "musl"
    return "glibc" if name.startswith(("ld-linux", "ld64.so", "ld.so.")) else None


def _program(head: bytes) -> Program | None:
    try:
        return read_program(io.BytesIO(head))
    except ElfError:
        return None


def _probe_by_copying(environment: Environment) -> Target:
    """Look into an environment that can't run a shell."""
    if not isinstance(environment, Readable):
        raise TargetError(
            f"{environment.name}: there is no '{_SHELL}' in it, and its files can't be read otherwise."
        )
    heads: dict[str, Program | None] = {}
    main = environment.main_program()
    for path in (*_LOADERS, *((main,) if main else ())):
        head = _copied_head(environment, path)
        if head is not None:
            heads[_SHELL if path == main else path] = _program(head)
    program, libc, notes = judge(heads)
    return Target(
        name=environment.name,
        program=program,
        libc=libc,
        libc_version=None,
        user=0,
        group=0,
        commands=frozenset(),
        has_shell=False,
        is_local=False,
        tmp=frozenset(),
        tmp_options=frozenset(),
        free_bytes=None,
        capsules_writable=None,
        capsules=Capsules({}, (), (), ()),
        notes=notes,
    )


def _copied_head(environment: Readable, path: str) -> bytes | None:
    try:
        packed = b"".join(environment.copy_out(path))
    except TargetError:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                if member.isreg() and (content := archive.extractfile(member)) is not None:
                    return content.read(_HEAD_BYTES)
    except tarfile.TarError:
        return None
    return None
