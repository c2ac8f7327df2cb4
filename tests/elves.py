"""ELF files for tests, written by hand: program headers and a dynamic segment, no sections and no code."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

BASE = 0x400000
DT = {"needed": 1, "soname": 14, "rpath": 15, "runpath": 29}


@dataclass(frozen=True)
class ElfSpec:
    """What the file should say.

    `versions`: for each library the symbol versions that it must have; `defines`: those that it has.
    """

    bits: int = 64
    big: bool = False
    machine: int = 62
    type: int = 3
    interpreter: str | None = None
    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: str | None = None
    runpath: str | None = None
    versions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    defines: tuple[str, ...] = ()
    pie: bool = False
    dynamic: bool = True


def make_elf(spec: ElfSpec) -> bytes:
    """Write the file: header, program headers, interpreter, strings, version needs, dynamic segment."""
    order = ">" if spec.big else "<"
    wide = spec.bits == 64
    header_bytes, entry_bytes = (64, 56) if wide else (52, 32)
    segments = 1 + spec.dynamic + (spec.interpreter is not None)
    start = header_bytes + segments * entry_bytes

    strings = bytearray(b"\0")

    def string(text: str) -> int:
        strings.extend(text.encode() + b"\0")
        return len(strings) - len(text.encode()) - 1

    entries = [(DT["needed"], string(name)) for name in spec.needed]
    for tag in ("soname", "rpath", "runpath"):
        text = getattr(spec, tag)
        if text is not None:
            entries.append((DT[tag], string(text)))
    needs = b""
    for index, (library, names) in enumerate(spec.versions.items()):
        size = 16 + 16 * len(names)
        following = size if index + 1 < len(spec.versions) else 0
        needs += struct.pack(order + "HHIII", 1, len(names), string(library), 16, following)
        for place, name in enumerate(names):
            step = 16 if place + 1 < len(names) else 0
            needs += struct.pack(order + "IHHII", 0, 0, 0, string(name), step)

    definitions = b""
    for index, name in enumerate(spec.defines):
        following = 28 if index + 1 < len(spec.defines) else 0
        definitions += struct.pack(order + "HHHHIII", 1, 0, index + 1, 1, 0, 20, following)
        definitions += struct.pack(order + "II", string(name), 0)

    interpreter = b"" if spec.interpreter is None else spec.interpreter.encode() + b"\0"
    strings_at = start + len(interpreter)
    needs_at = strings_at + len(strings)
    definitions_at = needs_at + len(needs)
    dynamic_at = definitions_at + len(definitions)
    entries.append((5, BASE + strings_at))
    if needs:
        entries += [(0x6FFFFFFE, BASE + needs_at), (0x6FFFFFFF, len(spec.versions))]
    if definitions:
        entries += [(0x6FFFFFFC, BASE + definitions_at), (0x6FFFFFFD, len(spec.defines))]
    if spec.pie:
        entries.append((0x6FFFFFFB, 0x08000000))
    entries.append((0, 0))
    dynamic = b"".join(struct.pack(order + ("qQ" if wide else "iI"), *entry) for entry in entries)
    if not spec.dynamic:
        dynamic = b""
    end = dynamic_at + len(dynamic)

    def segment(kind: int, offset: int, size: int) -> bytes:
        place = (offset, BASE + offset, BASE + offset, size, size)
        if wide:
            return struct.pack(order + "IIQQQQQQ", kind, 4, *place, 1)
        return struct.pack(order + "IIIIIIII", kind, *place, 4, 1)

    ident = b"\x7fELF" + bytes([spec.bits // 32, 2 if spec.big else 1, 1]) + bytes(9)
    fields = (spec.type, spec.machine, 1, 0, header_bytes, 0, 0, header_bytes, entry_bytes, segments, 0, 0, 0)
    header = ident + struct.pack(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"), *fields)
    table = segment(1, 0, end)
    if spec.interpreter is not None:
        table += segment(3, start, len(interpreter))
    if spec.dynamic:
        table += segment(2, dynamic_at, len(dynamic))
    return header + table + interpreter + bytes(strings) + needs + definitions + dynamic
