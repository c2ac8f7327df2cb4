"""Where dynamic loaders look for a library.

glibc: ld.so(8), elf/dl-load.c, and the cache's format in sysdeps/generic/dl-cache.h.
musl: ldso/dynlink.c. It takes LD_LIBRARY_PATH before any path of the files, and makes no difference between
DT_RPATH and DT_RUNPATH.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .elf import Elf
    from .why_view import View

_CACHE: Final = "/etc/ld.so.cache"
_CACHE_MAGIC: Final = b"glibc-ld.so.cache1.1"
_CACHE_HEADER: Final = struct.Struct("<20sII20x")
_CACHE_ENTRY: Final = struct.Struct("<iIIIQ")
_MAX_CACHE_BYTES: Final = 16 << 20
_MUSL_DEFAULT: Final = ("/lib", "/usr/local/lib", "/usr/lib")
_MUSL_OWN: Final = ("c", "pthread", "rt", "m", "dl", "util", "xnet")
"""musl's loader takes `lib<one of these>.<anything>` for itself."""

_LIBRARY_PATH: Final = "LD_LIBRARY_PATH"


@dataclass(frozen=True)
class Loaded:
    """A file in a process.

    Attributes:
        name: The name by which it was asked for.
        path: Where it is.
        folder: The folder that it really lies in, which $ORIGIN stands for.
        elf: Its head.
        how: What led to it, for people.
        asker: What asked for it; `None` for the program, and for what LD_PRELOAD names.
    """

    name: str
    path: str
    folder: str
    elf: Elf
    how: str
    asker: Loaded | None = None

    def chain(self) -> Iterator[Loaded]:
        """Yield it, what asked for it, what asked for that, and so on."""
        one: Loaded | None = self
        while one is not None:
            yield one
            one = one.asker


@dataclass(frozen=True)
class Candidate:
    """A place where a library may be, and why it is looked for there."""

    path: str
    how: str


class Search:
    """Where a loader looks.

    Args:
        libc: Whose loader it is: `glibc` or `musl`.
        loader: The loader's path, as programs name it.
        program: The program that is started.
        view: The environment.
    """

    def __init__(self, libc: str, loader: str, program: Loaded, view: View) -> None:
        self.libc = libc
        self._loader = loader
        self._program = program
        self._view = view
        self._machine = program.elf.machine
        self._library_path = [
            Candidate(self._expand(folder, program), _LIBRARY_PATH)
            for folder in view.surroundings.variable(_LIBRARY_PATH).replace(";", ":").split(":")
            if folder
        ]
        self._cache = self._read_cache() if libc == "glibc" else {}
        self._default = self._glibc_default() if libc == "glibc" else self._musl_default()

    def is_own(self, name: str) -> bool:
        """Return whether the loader takes a name for itself."""
        if self.libc == "glibc":
            return name.rpartition("/")[2] == self._loader.rpartition("/")[2]
        return name.startswith("lib") and name[3:].partition(".")[0] in _MUSL_OWN and "." in name[3:]

    def candidates(self, name: str, asker: Loaded) -> list[Candidate]:
        """Return where a library is looked for, in order."""
        if "/" in name:
            return [Candidate(self._expand(name, asker), f"named by '{asker.path}'")]
        folders: list[Candidate] = []
        if self.libc == "musl":
            folders += self._library_path
            for one in asker.chain():
                folders += self._run_path(one, one.elf.runpath or one.elf.rpath, "run path")
        else:
            if asker.elf.runpath is None:
                for one in (*asker.chain(), self._program):
                    if one.elf.runpath is None:
                        folders += self._run_path(one, one.elf.rpath, "RPATH")
            folders += self._library_path
            folders += self._run_path(asker, asker.elf.runpath, "RUNPATH")
        found = [Candidate(f"{folder.path.rstrip('/')}/{name}", folder.how) for folder in folders]
        found += [Candidate(path, "the loader's cache") for path in self._cache.get(name, ())]
        found += [Candidate(f"{folder}/{name}", "the loader's own folders") for folder in self._default]
        return list({candidate.path: candidate for candidate in reversed(found)}.values())[::-1]

    def fits(self, elf: Elf) -> bool:
        """Return whether a file is taken, rather than looked for further: musl takes the first one."""
        same = (elf.bits, elf.machine) == (self._program.elf.bits, self._machine)
        return same or self.libc == "musl"

    def _run_path(self, owner: Loaded, text: str | None, what: str) -> Iterator[Candidate]:
        for folder in (text or "").split(":"):
            if folder:
                yield Candidate(self._expand(folder, owner), f"the {what} of '{owner.path}'")

    def _expand(self, text: str, owner: Loaded) -> str:
        if "$" not in text:
            return text
        library = "lib64" if self._view.at("/lib64/libc.so.6").entry else f"lib/{self._machine}-linux-gnu"
        for name, value in (("ORIGIN", owner.folder), ("PLATFORM", self._machine), ("LIB", library)):
            text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
        return text

    def _glibc_default(self) -> list[str]:
        # Debian's build has the first four, others the last two: what isn't there is no harm.
        multiarch = f"{self._machine}-linux-gnu"
        return [
            *(f"/lib/{multiarch}", f"/usr/lib/{multiarch}", "/lib", "/usr/lib"),
            *("/lib64", "/usr/lib64"),
        ]

    def _musl_default(self) -> list[str]:
        prefix = self._loader.rpartition("/")[0].rpartition("/")[0]
        listed = self._text(f"{prefix}/etc/ld-musl-{self._machine}.path")
        if listed is None:
            return list(_MUSL_DEFAULT)
        return [folder.rstrip("/") for line in listed.splitlines() for folder in line.split(":") if folder]

    def _text(self, path: str) -> str | None:
        data = self._read(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def _read(self, path: str) -> bytes | None:
        entry = self._view.at(path).entry
        if entry is None or entry.kind != "file" or entry.size > _MAX_CACHE_BYTES:
            return None
        try:
            with self._view.files.open(entry) as stream:
                return stream.read()
        except TargetError:
            return None

    def _read_cache(self) -> dict[str, list[str]]:
        """Read the loader's cache; the new format may stand behind the old one. A broken one is no cache."""
        data = self._read(_CACHE) or b""
        start = data.find(_CACHE_MAGIC)
        found: dict[str, list[str]] = {}
        if start < 0 or len(data) < start + _CACHE_HEADER.size:
            return found
        table = data[start:]
        _, count, _ = _CACHE_HEADER.unpack_from(table)
        entries = table[_CACHE_HEADER.size : _CACHE_HEADER.size + count * _CACHE_ENTRY.size]
        whole = entries[: len(entries) // _CACHE_ENTRY.size * _CACHE_ENTRY.size]
        for _, key, value, _, _ in _CACHE_ENTRY.iter_unpack(whole):
            found.setdefault(_string(table, key), []).append(_string(table, value))
        return found


def libc_of_loader(path: str) -> str | None:
    """Return whose loader a name is: `glibc`, `musl`, or `None`."""
    name = path.rpartition("/")[2]
    if name.startswith("ld-musl-"):
        return "musl"
    return "glibc" if name.startswith(("ld-linux", "ld64.so", "ld.so.", "ld-2.")) else None


def _string(table: bytes, offset: int) -> str:
    return table[offset:].partition(b"\0")[0].decode("utf-8", "surrogateescape") if offset else ""
