from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_build.runtime.elf import Elf, ElfError, read_elf
from tests.elves import BASE, ElfSpec, make_elf
from tests.examples import examples

FULL = ElfSpec(
    interpreter="/tmp/R/abi/glibc/ld-linux-x86-64.so.2",
    needed=("libm.so.6", "libc.so.6"),
    soname="libself.so.1",
    rpath="/tmp/R/abi/glibc",
    runpath="$ORIGIN/../lib",
    versions={"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28"), "libm.so.6": ("GLIBC_2.29",)},
    defines=("libself.so.1", "SELF_1.0"),
    pie=True,
)


def read(data: bytes) -> Elf:
    return read_elf(io.BytesIO(data))


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("big", [False, True])
def test_a_head_reads_in_every_class_and_byte_order(bits: int, big: bool) -> None:
    elf = read(make_elf(ElfSpec(**{**vars(FULL), "bits": bits, "big": big})))
    assert elf == Elf(
        bits=bits,
        byte_order="big" if big else "little",
        machine="x86_64",
        type="shared object",
        interpreter="/tmp/R/abi/glibc/ld-linux-x86-64.so.2",
        needed=("libm.so.6", "libc.so.6"),
        soname="libself.so.1",
        rpath="/tmp/R/abi/glibc",
        runpath="$ORIGIN/../lib",
        versions={"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.28"), "libm.so.6": ("GLIBC_2.29",)},
        defines=("libself.so.1", "SELF_1.0"),
        is_pie=True,
        is_dynamic=True,
    )


@pytest.mark.parametrize(
    ("number", "name"),
    [(62, "x86_64"), (183, "aarch64"), (3, "i386"), (243, "riscv"), (9999, "machine 9999")],
)
def test_machines_have_names(number: int, name: str) -> None:
    assert read(make_elf(ElfSpec(machine=number))).machine == name


@pytest.mark.parametrize(
    ("spec", "static"),
    [
        (ElfSpec(type=2, dynamic=False), True),
        (ElfSpec(type=3, pie=True), True),
        (ElfSpec(type=3), False),
        (ElfSpec(type=3, pie=True, needed=("libc.so",)), False),
        (ElfSpec(type=3, pie=True, interpreter="/lib/ld-musl-x86_64.so.1"), False),
        (ElfSpec(type=2, interpreter="/lib64/ld-linux-x86-64.so.2", needed=("libc.so.6",)), False),
        (ElfSpec(type=1, dynamic=False), False),
    ],
    ids=[
        "ET_EXEC",
        "static PIE",
        "a library without needs",
        "needing a library",
        "PIE",
        "dynamic",
        "an object",
    ],
)
def test_static_programs_are_told_from_others(spec: ElfSpec, static: bool) -> None:
    assert read(make_elf(spec)).is_static is static


def test_this_very_python_reads() -> None:
    with Path(sys.executable).resolve().open("rb") as stream:
        elf = read_elf(stream)
    assert elf.bits == struct.calcsize("P") * 8
    assert elf.type in ("executable", "shared object")


def test_the_stream_may_stand_anywhere() -> None:
    stream = io.BytesIO(make_elf(FULL))
    stream.seek(17)
    assert read_elf(stream).soname == "libself.so.1"


def test_data_behind_the_elf_does_no_harm() -> None:
    assert read(make_elf(FULL) + b"payload" * 1000) == read(make_elf(FULL))


def dynamic_entry(data: bytes, tag: int) -> int:
    """Where a tag's value stands in a little-endian 64-bit file that ends with its dynamic segment."""
    place = len(data) - 16
    while struct.unpack_from("<q", data, place)[0] != tag:
        place -= 16
    return place + 8


def test_a_string_before_the_string_table_is_found_by_wrapping() -> None:
    """A sealed file's RPATH may lie in a hole before the table: its offset is negative, modulo 2^64."""
    data = bytearray(make_elf(FULL))
    table = struct.unpack_from("<Q", data, dynamic_entry(bytes(data), 5))[0]
    name = bytes(data).index(b"/tmp/R/abi/glibc/ld-linux")
    struct.pack_into("<Q", data, dynamic_entry(bytes(data), 15), (BASE + name - table) % 2**64)
    assert read(bytes(data)).rpath == "/tmp/R/abi/glibc/ld-linux-x86-64.so.2"


def patched(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(make_elf(FULL))
    struct.pack_into("<" + layout, data, offset, value)
    return bytes(data)


FULL_DATA = make_elf(FULL)
LOAD, INTERP, DYNAMIC = 64, 64 + 56, 64 + 112

BROKEN = {
    "empty": b"",
    "only the magic": b"\x7fELF",
    "another magic": b"MZ" + FULL_DATA[2:],
    "class 0": patched(4, "B", 0),
    "class 3": patched(4, "B", 3),
    "byte order 0": patched(5, "B", 0),
    "cut off in its header": FULL_DATA[:40],
    "cut off in its program headers": FULL_DATA[:100],
    "cut off in its strings": FULL_DATA[:-300],
    "program headers beyond the end": patched(32, "Q", 2**40),
    "program headers at 2^64": patched(32, "Q", 2**64 - 1),
    "program headers of another size": patched(54, "H", 32),
    "program headers of size 0": patched(54, "H", 0),
    "65535 program headers": patched(56, "H", 0xFFFF),
    "an interpreter of 1 GiB": patched(INTERP + 32, "Q", 2**30),
    "an interpreter beyond the end": patched(INTERP + 8, "Q", 2**33),
    "an interpreter without NUL": patched(INTERP + 32, "Q", 10),
    "an interpreter of no bytes": patched(INTERP + 32, "Q", 0),
    "a dynamic segment of 1 TiB": patched(DYNAMIC + 32, "Q", 2**40),
    "a dynamic segment beyond the end": patched(DYNAMIC + 8, "Q", 2**63),
    "nothing loaded": patched(LOAD, "I", 0),
    "the loaded part elsewhere": patched(LOAD + 16, "Q", 0x10),
    "the string table nowhere": patched(dynamic_entry(FULL_DATA, 5), "Q", 0x7FFF_0000_0000),
    "no string table": patched(dynamic_entry(FULL_DATA, 5) - 8, "Q", 0x1234),
    "a name beyond the string table": patched(dynamic_entry(FULL_DATA, 14), "Q", 2**40),
    "version needs nowhere": patched(dynamic_entry(FULL_DATA, 0x6FFFFFFE), "Q", 1),
    "version needs in the end": patched(dynamic_entry(FULL_DATA, 0x6FFFFFFE), "Q", BASE + len(FULL_DATA) - 4),
    "too many libraries": make_elf(ElfSpec(needed=("l.so",) * 1025)),
    "too many versions": make_elf(ElfSpec(versions={"l.so": ("V_1",) * 5000})),
    "a string that never ends": make_elf(ElfSpec(soname="n" * 5000)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_contract_error(name: str) -> None:
    with pytest.raises(ElfError) as caught:
        read(BROKEN[name])
    assert caught.value.exit_code == 5


def test_version_needs_that_point_at_themselves_end() -> None:
    needs = struct.unpack_from("<Q", FULL_DATA, dynamic_entry(FULL_DATA, 0x6FFFFFFE))[0] - BASE
    looped = bytearray(FULL_DATA)
    struct.pack_into("<Q", looped, dynamic_entry(FULL_DATA, 0x6FFFFFFF), 2**64 - 1)
    struct.pack_into("<I", looped, needs + 16 + 12, 0)
    assert len(read(bytes(looped)).versions) == 2


@given(st.binary(max_size=300))
def test_any_bytes_are_an_elf_error(data: bytes) -> None:
    with pytest.raises(ElfError):
        read(data)


@given(data=st.binary(max_size=400), ident=st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2)]))
def test_any_bytes_behind_a_right_beginning_are_read_or_refused(data: bytes, ident: tuple[int, int]) -> None:
    start = b"\x7fELF" + bytes(ident) + bytes(10)
    try:
        elf = read(start + data)
    except ElfError:
        return
    assert elf.bits == 32 * ident[0]


SAMPLES = [
    make_elf(ElfSpec(**{**vars(FULL), "bits": bits, "big": big}))
    for bits in (32, 64)
    for big in (False, True)
]


@settings(max_examples=examples(600))
@given(
    sample=st.sampled_from(SAMPLES),
    edits=st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.sampled_from([b"\0", b"\xff", b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7])
            | st.binary(max_size=8),
        ),
        min_size=1,
        max_size=5,
    ),
    cut=st.integers(0, 2000),
)
def test_random_damage_is_read_or_refused(sample: bytes, edits: list[tuple[int, bytes]], cut: int) -> None:
    data = bytearray(sample)
    for place, put in edits:
        start = place % len(data)
        data[start : start + len(put)] = put
    try:
        elf = read(bytes(data[: max(1, len(data) - cut // 10)]))
    except ElfError:
        return
    assert elf.bits in (32, 64)
    "".join(elf.needed).encode()  # no lone surrogates: what is read can be printed
