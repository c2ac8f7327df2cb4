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
from typing import TYPE_CHECKING, Final

from .elf import ElfError, Program, read_program
from .environment import OnThisMachine, Readable
from .errors import ContractError, TargetError
from .layout import CAPSULES, MANIFEST, SETUPS, Mark
from .manifest import Manifest, ManifestError
from .process import ProgramMissingError
from .scripts import PROBE
from .target import SHELL, Capsules, Folder, Present, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .environment import Environment

_SECONDS: Final = 60.0
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
_ID: Final = re.compile(r"[0-9]{1,10}")
"""A user's or group's number; what else Python takes for digits is none."""
_EITHER: Final = "either variant of a capsule is right, glibc's is taken where there is one."


def probe(environment: Environment) -> Target:
    """Look into an environment. Nothing is changed there.

    Raises:
        TargetError: It can't be looked into.
        EngineError: Its engine can't be reached.
    """
    line = f"-- {secrets.token_hex(16)} "
    try:
        result = environment.run([SHELL, "-c", PROBE, "probe", line], timeout=_SECONDS)
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
        if not values or not _ID.fullmatch(values[0]):
            raise TargetError(f"{self._environment.name}: it doesn't say who its user is ({key}).")
        return int(values[0])

    def _folders(self) -> Iterator[Folder]:
        seen = set()
        for value in self._all("folder"):
            path, mode, _, owner, *_ = (*value.split(None, 4), "", "", "", "")
            if path in ("/tmp", CAPSULES, SETUPS) and path not in seen:  # noqa: S108
                seen.add(path)
                if len(mode) < 10 or not _ID.fullmatch(owner):
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
    shell = programs.get(SHELL)
    others = {path: program for path, program in programs.items() if path != SHELL and program is not None}
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
            f"{environment.name}: there is no '{SHELL}' in it, and its files can't be read otherwise."
        )
    heads: dict[str, Program | None] = {}
    main = environment.main_program()
    for path in (*_LOADERS, *((main,) if main else ())):
        head = _copied_head(environment, path)
        if head is not None:
            heads[SHELL if path == main else path] = _program(head)
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
