"""The head of an ELF file: what it is, and what it asks of the dynamic loader.

Format: System V ABI, chapters 4 and 5, and the LSB's symbol versioning. Only what the kernel and the loader
read counts: program headers and the dynamic segment. Section headers may be absent, or lie.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final

from .errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC: Final = b"\x7fELF"
"""The first bytes of every ELF file."""

_MAX_STRING_BYTES: Final = 4096
_MAX_SEGMENTS: Final = 4096
_MAX_DYNAMIC_BYTES: Final = 1 << 20
_MAX_NEEDED: Final = 1024
_MAX_VERSIONS: Final = 4096

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERDEFNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD
_DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
_DF_1_PIE: Final = 0x08000000

_TYPES: Final = {1: "relocatable", 2: "executable", 3: "shared object", 4: "core"}
_MACHINES: Final = {
    3: "i386",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}


class ElfError(ContractError):
    """A file isn't ELF, or is broken where its head must be right."""


@dataclass(frozen=True)
class Elf:
    """What an ELF file's head says.

    Attributes:
        bits: 32 or 64.
        byte_order: `little` or `big`.
        machine: The architecture's usual name, or `machine <number>`.
        type: `relocatable`, `executable`, `shared object` (so are position-independent executables), `core`,
            or `type <number>`.
        interpreter: The loader that the kernel starts for it; `None` without.
        needed: The libraries that it asks for, in order.
        soname: The name by which others ask for it.
        rpath: Its DT_RPATH, folders joined by colons.
        runpath: Its DT_RUNPATH.
        versions: The symbol versions that it needs, by the library that must have them.
        defines: The symbol versions that it has for others.
        is_pie: Whether it is marked as a position-independent executable (DF_1_PIE).
        is_dynamic: Whether it has a dynamic segment.
    """

    bits: int
    byte_order: str
    machine: str
    type: str
    interpreter: str | None = None
    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defines: tuple[str, ...] = ()
    is_pie: bool = False
    is_dynamic: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it is a program that runs without a loader: ET_EXEC, or static PIE."""
        return (
            self.interpreter is None
            and not self.needed
            and (self.type == "executable" or (self.type == "shared object" and self.is_pie))
        )


def read_elf(stream: IO[bytes]) -> Elf:
    """Read the head of an ELF file.

    Args:
        stream: The file, open for reading bytes, seekable.

    Raises:
        ElfError: It isn't ELF, or what its head points at isn't there.
    """
    return _Reader(stream).read()


@dataclass(frozen=True)
class Program:
    """What the kernel reads of a program before it starts it (see `Elf`)."""

    bits: int
    byte_order: str
    machine: str
    interpreter: str | None = None


def read_program(stream: IO[bytes]) -> Program:
    """Read an ELF file's header and program headers; the first few KB of a file are enough for that.

    Args:
        stream: The file or its beginning, open for reading bytes, seekable.

    Raises:
        ElfError: It isn't ELF, or what its header points at isn't there.
    """
    return _Reader(stream).program()


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


class _Reader:
    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._size = stream.seek(0, 2)
        ident = self._at(0, 16, "its first bytes")
        if ident[:4] != MAGIC:
            raise ElfError("It is not an ELF file: it begins with other bytes.")
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise ElfError(f"It is not an ELF file: its class is {ident[4]}, its byte order {ident[5]}.")
        self._bits = 32 * ident[4]
        self._order = "<" if ident[5] == 1 else ">"
        self._segments: list[_Segment] = []

    def program(self) -> Program:
        _, machine = self._read_header()
        return Program(self._bits, self._byte_order, machine, self._interpreter())

    def read(self) -> Elf:
        kind, machine = self._read_header()
        dynamic = self._dynamic()
        strings = dynamic[_DT_STRTAB][-1] if _DT_STRTAB in dynamic else None
        needed = dynamic.get(_DT_NEEDED, [])
        if len(needed) > _MAX_NEEDED:
            raise ElfError(f"It asks for {len(needed)} libraries; more than {_MAX_NEEDED} can't be.")

        def named(tag: int) -> str | None:
            values = dynamic.get(tag)
            return None if values is None else self._string(strings, values[-1])

        return Elf(
            bits=self._bits,
            byte_order=self._byte_order,
            machine=machine,
            type=_TYPES.get(kind, f"type {kind}"),
            interpreter=self._interpreter(),
            needed=tuple(self._string(strings, value) for value in needed),
            soname=named(_DT_SONAME),
            rpath=named(_DT_RPATH),
            runpath=named(_DT_RUNPATH),
            versions=self._versions(dynamic, strings),
            defines=self._defines(dynamic, strings),
            is_pie=bool(dynamic.get(_DT_FLAGS_1, [0])[-1] & _DF_1_PIE),
            is_dynamic=bool(dynamic),
        )

    @property
    def _byte_order(self) -> str:
        return "little" if self._order == "<" else "big"

    def _read_header(self) -> tuple[int, str]:
        """Read the header and the program headers; return the file's type and its machine's name."""
        layout = "HHIQQQIHHH" if self._bits == 64 else "HHIIIIIHHH"
        kind, machine, _, _, table, _, _, _, entry_bytes, count = self._unpack(16, layout, "its header")
        self._read_segments(table, entry_bytes, count)
        return kind, _MACHINES.get(machine, f"machine {machine}")

    def _read_segments(self, table: int, entry_bytes: int, count: int) -> None:
        if not count:
            return
        layout = "IIQQQQQQ" if self._bits == 64 else "IIIIIIII"
        if entry_bytes != struct.calcsize(self._order + layout):
            raise ElfError(f"Its program headers claim to have {entry_bytes} bytes each.")
        if count > _MAX_SEGMENTS:
            raise ElfError(f"It claims {count} program headers; more than {_MAX_SEGMENTS} can't be.")
        for index in range(count):
            fields = self._unpack(table + index * entry_bytes, layout, "a program header")
            kind, offset, address, size = (
                fields[0],
                *(
                    (fields[2], fields[3], fields[5])
                    if self._bits == 64
                    else (fields[1], fields[2], fields[4])
                ),
            )
            self._segments.append(_Segment(kind, offset, address, size))

    def _segment(self, kind: int) -> _Segment | None:
        return next((segment for segment in self._segments if segment.kind == kind), None)

    def _interpreter(self) -> str | None:
        segment = self._segment(_PT_INTERP)
        if segment is None:
            return None
        if segment.size > _MAX_STRING_BYTES:
            raise ElfError(f"The name of its interpreter has {segment.size} bytes.")
        raw, end, _ = self._at(segment.offset, segment.size, "its interpreter").partition(b"\0")
        if not raw or not end:
            raise ElfError("The name of its interpreter is empty, or not ended by NUL.")
        return _text(raw)

    def _dynamic(self) -> dict[int, list[int]]:
        """Return the dynamic segment's entries up to its end mark: the values of each tag, in order."""
        segment = self._segment(_PT_DYNAMIC)
        if segment is None:
            return {}
        if segment.size > _MAX_DYNAMIC_BYTES:
            raise ElfError(f"Its dynamic segment has {segment.size} bytes.")
        data = self._at(segment.offset, segment.size, "its dynamic segment")
        layout = struct.Struct(self._order + ("qQ" if self._bits == 64 else "iI"))
        entries: dict[int, list[int]] = {}
        for tag, value in layout.iter_unpack(data[: len(data) - len(data) % layout.size]):
            if tag == _DT_NULL:
                break
            entries.setdefault(tag, []).append(value)
        return entries

    def _versions(self, dynamic: dict[int, list[int]], strings: int | None) -> dict[str, tuple[str, ...]]:
        """Return the version needs (LSB, "Version Requirements"): a list of libraries, each with versions."""
        if _DT_VERNEED not in dynamic:
            return {}
        found: dict[str, list[str]] = {}
        place = self._offset(dynamic[_DT_VERNEED][-1])
        left = _MAX_VERSIONS
        for _ in range(min(dynamic.get(_DT_VERNEEDNUM, [0])[-1], _MAX_VERSIONS)):
            _, count, library, first, following = self._unpack(place, "HHIII", "a version need")
            left -= count + 1
            if left < 0:
                raise ElfError(f"It claims more than {_MAX_VERSIONS} version needs.")
            names = found.setdefault(self._string(strings, library), [])
            aux = place + first
            for _ in range(count):
                _, _, _, name, step = self._unpack(aux, "IHHII", "a needed version")
                names.append(self._string(strings, name))
                aux += step
            if not following:
                break
            place += following
        return {library: tuple(names) for library, names in found.items()}

    def _defines(self, dynamic: dict[int, list[int]], strings: int | None) -> tuple[str, ...]:
        """Return the version definitions (LSB, "Version Definitions"): the first name of each is its own."""
        if _DT_VERDEF not in dynamic:
            return ()
        found: list[str] = []
        place = self._offset(dynamic[_DT_VERDEF][-1])
        for _ in range(min(dynamic.get(_DT_VERDEFNUM, [0])[-1], _MAX_VERSIONS)):
            *_, first, following = self._unpack(place, "HHHHIII", "a version definition")
            name, _ = self._unpack(place + first, "II", "a defined version")
            found.append(self._string(strings, name))
            if not following:
                break
            place += following
        return tuple(found)

    def _string(self, table: int | None, value: int) -> str:
        """Return a string of the dynamic string table; offsets wrap as addresses do."""
        if table is None:
            raise ElfError("Its dynamic segment has strings, but no string table.")
        offset = self._offset((table + value) % (1 << self._bits))
        raw, end, _ = self._at(offset, min(_MAX_STRING_BYTES, self._size - offset), "a string").partition(
            b"\0"
        )
        if not end:
            raise ElfError(f"One of its strings is not ended within {_MAX_STRING_BYTES} bytes.")
        return _text(raw)

    def _offset(self, address: int) -> int:
        """Return where in the file an address of the loaded program comes from."""
        for segment in self._segments:
            if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        raise ElfError(f"The address {address:#x} in its dynamic segment is in no loaded part of the file.")

    def _unpack(self, offset: int, layout: str, what: str) -> tuple[int, ...]:
        form = struct.Struct(self._order + layout)
        return form.unpack(self._at(offset, form.size, what))

    def _at(self, offset: int, size: int, what: str) -> bytes:
        """Return `size` bytes of the file at an offset; all arithmetic on hostile numbers ends here."""
        if offset < 0 or size < 0 or offset + size > self._size:
            raise ElfError(f"It is cut off: {what} should stand at byte {offset}, and it has {self._size}.")
        self._stream.seek(offset)
        data = self._stream.read(size)
        if len(data) != size:
            raise ElfError(f"It can't be read: {what} ends early.")
        return data


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
