"""How files of an environment are looked at without changing anything there.

By its files, where they are this machine's; by its shell, in parts, so that a program of some hundred MB
isn't copied; else by the engine's copying, which needs no program in the image.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import stat
import tarfile
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from .environment import Configured, OnThisMachine, Readable
from .errors import TargetError
from .process import ProgramMissingError
from .scripts import HEAD
from .target import SHELL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .environment import Environment

_SECONDS: Final = 60.0
_BLOCK_BYTES: Final = 1 << 18
_MOUNTS: Final = "/proc/self/mounts"

_ENTRIES: Final = (
    HEAD
    + r"""
# The paths. For each a line with what is there, and for a symlink a second one with where it leads.
for one; do
  kind=none size=0 runs=no folder=
  if [ -L "$one" ]; then kind=link
  elif [ -f "$one" ]; then kind=file
  elif [ -d "$one" ]; then kind=folder
  elif [ -e "$one" ]; then kind=other
  fi
  if [ "$kind" != none ]; then
    [ -x "$one" ] && runs=yes
    folder=$(cd "${one%/*}/" 2>/dev/null && pwd -P)
    [ "$kind" = file ] && size=$(ls -ldn "$one" | { read -r mode links user group size rest; echo "$size"; })
  fi
  say "$kind" "$runs $size $folder"
  [ "$kind" = link ] && say target "$(readlink "$one")"
done
exit 0
"""
)

_READ: Final = HEAD + 'tail -c "+$2" "$1" | head -c "$3"\n'
"""Prints a part of a file: from a byte, counted from 1, so many."""

_SURROUNDINGS: Final = (
    HEAD
    + r"""
# $1: a line that neither has. The shell's own environment is what it was started with, whatever is set above.
cat "/proc/$$/environ"
printf '\n%s\n' "$1"
cat /proc/self/mounts
"""
)


@dataclass(frozen=True)
class Entry:
    """What a path is.

    Attributes:
        path: The path.
        kind: `file`, `folder`, `link` or `other`.
        size: Bytes of a file.
        may_run: Whether this user may execute it; of a symlink, what it leads to.
        folder: The folder that it lies in, without symlinks; empty: unknown.
        target: Where a symlink leads, as it says itself.
    """

    path: str
    kind: str
    size: int
    may_run: bool
    folder: str
    target: str | None = None

    @property
    def real_path(self) -> str:
        """The path without symlinks in its folders."""
        return f"{self.folder.rstrip('/')}/{self.path.rpartition('/')[2]}" if self.folder else self.path

    @property
    def following(self) -> str | None:
        """The path that a symlink leads to; the system resolves what is in its folders."""
        if self.target is None:
            return None
        return (
            self.target if self.target.startswith("/") else f"{(self.folder or '').rstrip('/')}/{self.target}"
        )


@dataclass(frozen=True)
class Surroundings:
    """What a program in an environment is given.

    Attributes:
        variables: Its variables; `None`: unknown.
        mounts: Mounted places with their options, in order; `None`: unknown.
    """

    variables: Mapping[str, str] | None
    mounts: tuple[tuple[str, frozenset[str]], ...] | None

    def variable(self, name: str) -> str:
        """Return a variable's value; empty where it isn't set, or nobody knows."""
        return (self.variables or {}).get(name, "")

    def options_at(self, path: str) -> frozenset[str]:
        """Return the options of the mount that a path lies on; empty: unknown."""
        best, found = -1, frozenset[str]()
        for place, options in self.mounts or ():
            if f"{path}/".startswith(f"{place.rstrip('/')}/") and len(place) >= best:
                best, found = len(place), options
        return found


class Files(ABC):
    """The files of an environment."""

    @abstractmethod
    def entries(self, paths: Sequence[str]) -> dict[str, Entry]:
        """Return what paths are, symlinks themselves; what isn't there, or can't be seen, is left out.

        Raises:
            TargetError: The environment can't be looked into.
        """

    @abstractmethod
    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return a part of a file; less where it ends before.

        Raises:
            TargetError: It can't be read.
        """

    @abstractmethod
    def surroundings(self) -> Surroundings:
        """Return what a program in it is given.

        Raises:
            TargetError: The environment can't be looked into.
        """

    @property
    def has_shell(self) -> bool:
        """Whether programs can be run there."""
        return True

    def close(self) -> None:  # noqa: B027 (most ways hold nothing)
        """Let go of what is held."""

    def open(self, entry: Entry) -> IO[bytes]:
        """Open a file to be read, in parts and from anywhere."""
        return io.BufferedReader(_Parts(self, entry), _BLOCK_BYTES)


def files_of(environment: Environment) -> Files:
    """Return the way in which an environment's files are looked at.

    Raises:
        TargetError: There is none.
        EngineError: Its engine can't be reached.
    """
    if isinstance(environment, OnThisMachine):
        return _LocalFiles(environment)
    with contextlib.suppress(ProgramMissingError, TargetError):
        return _ShellFiles(environment)
    if isinstance(environment, Readable):
        return _CopiedFiles(environment, environment)
    raise TargetError(
        f"{environment.name}: there is no working '{SHELL}' in it, and its files can't be read otherwise."
    )


class _Parts(io.RawIOBase):
    """A file of an environment; what was read is kept, in blocks."""

    def __init__(self, files: Files, entry: Entry) -> None:
        self._files = files
        self._entry = entry
        self._place = 0
        self._blocks: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._entry.size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # io gives a writable buffer
        number, start = divmod(self._place, _BLOCK_BYTES)
        if number not in self._blocks:
            place = number * _BLOCK_BYTES
            inside = place < self._entry.size
            self._blocks[number] = self._files.read(self._entry.path, place, _BLOCK_BYTES) if inside else b""
        data = self._blocks[number][start : start + len(view)]
        view[: len(data)] = data
        self._place += len(data)
        return len(data)


class _LocalFiles(Files):
    def __init__(self, environment: OnThisMachine) -> None:
        self._environment = environment

    def entries(self, paths: Sequence[str]) -> dict[str, Entry]:
        return {path: entry for path in paths if (entry := self._entry(path)) is not None}

    def read(self, path: str, offset: int, size: int) -> bytes:
        try:
            with Path(self._environment.local_path(path)).open("rb") as stream:
                stream.seek(offset)
                return stream.read(size)
        except OSError as error:
            raise TargetError(f"'{path}' can't be read: {error.strerror}.") from error

    def surroundings(self) -> Surroundings:
        return Surroundings(dict(os.environ), _mounts(Path(_MOUNTS).read_bytes()))

    def _entry(self, path: str) -> Entry | None:
        there = Path(self._environment.local_path(path))
        try:
            facts = there.lstat()
            folder = str(there.parent.resolve())
        except OSError:
            return None
        kinds = {stat.S_IFLNK: "link", stat.S_IFREG: "file", stat.S_IFDIR: "folder"}
        kind = kinds.get(stat.S_IFMT(facts.st_mode), "other")
        root = self._environment.local_path("/").rstrip("/")
        return Entry(
            path=path,
            kind=kind,
            size=facts.st_size,
            may_run=os.access(there, os.X_OK),
            folder=folder.removeprefix(root) or "/",
            target=str(there.readlink()) if kind == "link" else None,
        )


class _ShellFiles(Files):
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        # Also how it comes out whether there is a shell that works.
        self._surroundings = self._asked_surroundings()

    def entries(self, paths: Sequence[str]) -> dict[str, Entry]:
        if not paths:
            return {}
        said = self._ask(_ENTRIES, *paths).decode("utf-8", "surrogateescape").split("\n")
        lines = iter(said)
        found: dict[str, Entry] = {}
        for path in paths:
            kind, _, facts = next(lines, "").partition("\t")
            runs, _, rest = facts.partition(" ")
            size, _, folder = rest.partition(" ")
            target = next(lines, "").partition("\t")[2] if kind == "link" else None
            if kind not in ("", "none"):
                found[path] = Entry(
                    path, kind, int(size) if size.isdigit() else 0, runs == "yes", folder, target
                )
        return found

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self._ask(_READ, path, str(offset + 1), str(size))

    def surroundings(self) -> Surroundings:
        return self._surroundings

    def _asked_surroundings(self) -> Surroundings:
        line = secrets.token_hex(16)
        variables, _, mounts = self._ask(_SURROUNDINGS, line).partition(f"\n{line}\n".encode())
        return Surroundings(_variables(variables.split(b"\0")), _mounts(mounts))

    def _ask(self, script: str, *words: str) -> bytes:
        result = self._environment.run([SHELL, "-c", script, "why", *words], timeout=_SECONDS)
        if result.code != 0:
            raise TargetError(
                f"{self._environment.name}: it can't be looked into: {result.error_text.strip()}"
            )
        return result.stdout


@dataclass(frozen=True)
class _Copy:
    """A tar with one file: what it is, and where its content begins."""

    entry: Entry
    stream: IO[bytes]
    start: int


class _CopiedFiles(Files):
    """Files that are copied out whole, each once; symlinks are followed on the way."""

    def __init__(self, environment: Environment, readable: Readable) -> None:
        self._environment = environment
        self._readable = readable
        self._copies: dict[str, _Copy | None] = {}

    @property
    def has_shell(self) -> bool:
        return False

    def entries(self, paths: Sequence[str]) -> dict[str, Entry]:
        return {path: copy.entry for path in paths if (copy := self._copy(path)) is not None}

    def read(self, path: str, offset: int, size: int) -> bytes:
        copy = self._copy(path)
        if copy is None:
            raise TargetError(f"{self._environment.name}: '{path}' can't be read.")
        copy.stream.seek(copy.start + offset)
        return copy.stream.read(max(0, min(size, copy.entry.size - offset)))

    def close(self) -> None:
        for copy in self._copies.values():
            if copy is not None:
                copy.stream.close()

    def surroundings(self) -> Surroundings:
        environment = self._environment
        variables = environment.variables() if isinstance(environment, Configured) else None
        return Surroundings(variables, None)

    def _copy(self, path: str) -> _Copy | None:
        if path not in self._copies:
            self._copies[path] = self._copied(path)
        return self._copies[path]

    def _copied(self, path: str) -> _Copy | None:
        with contextlib.ExitStack() as stack:
            packed = stack.enter_context(tempfile.TemporaryFile())
            try:
                for piece in self._readable.copy_out(path):
                    packed.write(piece)
                packed.seek(0)
                with tarfile.open(fileobj=packed) as archive:
                    member = archive.next()
            except (TargetError, tarfile.TarError):
                return None
            if member is None:
                return None
            kind = "file" if member.isreg() else "folder" if member.isdir() else "other"
            # Held as long as its content may be asked for: see `close`.
            stack.pop_all()
            entry = Entry(path, kind, member.size, bool(member.mode & 0o111), "")
            return _Copy(entry, packed, member.offset_data)


def _variables(items: Sequence[bytes]) -> dict[str, str]:
    pairs = (item.decode("utf-8", "surrogateescape").partition("=") for item in items)
    return {name: value for name, equals, value in pairs if equals}


def _mounts(text: bytes) -> tuple[tuple[str, frozenset[str]], ...]:
    """Read proc_pid_mounts(5): the second field is the place, with blanks as octal numbers."""
    found = []
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        fields = line.split(" ")
        if len(fields) > 3:
            place = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[1])
            found.append((place, frozenset(fields[3].split(","))))
    return tuple(found)
