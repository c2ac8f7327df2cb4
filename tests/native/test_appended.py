"""Programs that carry data of their own: behind the ELF part, or in a section."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Images, SetupRoot
    from .programs import Compiler

MISSING_LOADER = "/lib/ld-linux-that-is-not-here.so.2"

READS_TRAILER = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char trailer[16], payload[48];
    int fd = open("/proc/self/exe", O_RDONLY);
    off_t end = lseek(fd, 0, SEEK_END);
    uint64_t offset;
    if (pread(fd, trailer, 16, end - 16) != 16 || memcmp(trailer, "PAYLOAD!", 8) != 0) return 1;
    memcpy(&offset, trailer + 8, 8);
    if (pread(fd, payload, 48, (off_t)offset) != 48) return 2;
    printf("%.48s\n", payload);
    return 0;
}
"""

READS_OFFSETS = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
/* Four offsets, the first from the file's start, the others from its end. */
int main(void) {
    uint64_t at[4];
    char part[5] = "";
    int fd = open("/proc/self/exe", O_RDONLY);
    off_t end = lseek(fd, 0, SEEK_END);
    if (pread(fd, at, sizeof at, end - (off_t)sizeof at) != sizeof at) return 1;
    for (int i = 0; i < 4; i++) {
        off_t offset = i == 0 ? (off_t)at[i] : end - (off_t)at[i];
        if (pread(fd, part, 4, offset) != 4) return 2;
        printf("%s ", part);
    }
    puts("end");
    return 0;
}
"""

READS_SECTION = r"""
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    Elf64_Ehdr header;
    int fd = open("/proc/self/exe", O_RDONLY);
    if (pread(fd, &header, sizeof header, 0) != sizeof header) return 1;
    Elf64_Shdr *sections = calloc(header.e_shnum, sizeof *sections);
    pread(fd, sections, header.e_shnum * sizeof *sections, (off_t)header.e_shoff);
    char *names = malloc(sections[header.e_shstrndx].sh_size);
    pread(fd, names, sections[header.e_shstrndx].sh_size, (off_t)sections[header.e_shstrndx].sh_offset);
    for (int i = 0; i < header.e_shnum; i++)
        if (strcmp(names + sections[i].sh_name, ".payload") == 0) {
            char payload[49] = "";
            pread(fd, payload, 48, (off_t)sections[i].sh_offset);
            puts(payload);
            return 0;
        }
    return 2;
}
"""

PAYLOAD = b"a payload of exactly forty-eight bytes: 1234567."
LAYOUTS = [
    pytest.param((), id="pie"),
    pytest.param(("-no-pie",), id="no-pie"),
    pytest.param(("-s",), id="pie-stripped"),
    pytest.param(("-no-pie", "-s"), id="no-pie-stripped"),
    # One page after the other without a gap, and no compiler versions: no room inside.
    pytest.param(("-Wl,-z,noseparate-code", "-s", "-Wl,-R.comment"), id="pie-full"),
    pytest.param(("-no-pie", "-Wl,-z,noseparate-code", "-s", "-Wl,-R.comment"), id="no-pie-full"),
]


_MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_memory_kib(*argv: str) -> int:
    """Return a program's peak, from a small process: until a program starts its parent's size counts."""
    return int(run([sys.executable, "-S", "-E", "-c", _MEASURE, *argv]).text)


def build(compiler: Compiler, source: str, flags: tuple[str, ...]) -> bytes:
    """Return a program without a loader; "full" ones have their room inside taken."""
    full = "-Wl,-R.comment" in flags
    flags = tuple(flag for flag in flags if flag != "-Wl,-R.comment")
    program = compiler(source, f"-Wl,--dynamic-linker={MISSING_LOADER}", *flags)
    if full:
        stripped = program.with_name("full")
        run(["objcopy", "--remove-section=.comment", str(program), str(stripped)])
        return _without_room(stripped.read_bytes())
    return program.read_bytes()


def _without_room(data: bytes) -> bytes:
    """Fill what no header claims between the segments."""
    full = bytearray(data)
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    shoff, shnum = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    used = [(0, 64), (phoff, phoff + 56 * phnum), (shoff, shoff + 64 * shnum)]
    for i in range(shnum):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", data, shoff + 64 * i + 4)
        if kind not in (0, 8):
            used.append((offset, offset + size))
    reached = 0
    for begin, end in sorted(used):
        if begin > reached:
            full[reached:begin] = b"\xee" * (begin - reached)
        reached = max(reached, end)
    return bytes(full)


@pytest.mark.parametrize("flags", LAYOUTS)
def test_a_payload_behind_the_program_is_found_by_its_absolute_offset(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, flags: tuple[str, ...]
) -> None:
    elf = build(compiler, READS_TRAILER, flags)
    program = root.write("bin/agent", elf + PAYLOAD + b"PAYLOAD!" + struct.pack("<Q", len(elf)))
    before = program.read_bytes()
    sealed = root.seal()
    if sealed.code == 0:
        assert sealed.paths("interpreters") == {"bin/agent"}
        assert images_by_kind("bare").run(root.path, program).text == PAYLOAD.decode() + "\n"
    else:
        assert sealed.reason("bin/agent")
        assert program.read_bytes() == before
    assert sealed.code == 0


@pytest.mark.parametrize("flags", LAYOUTS)
def test_a_trailer_of_four_offsets_finds_all_four(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, flags: tuple[str, ...]
) -> None:
    elf = build(compiler, READS_OFFSETS, flags)
    parts = b"one_two_threfour"
    trailer = struct.pack("<QQQQ", len(elf), 44, 40, 36)
    program = root.write("bin/agent", elf + parts + trailer)
    assert root.seal().code == 0
    assert images_by_kind("bare").run(root.path, program).text == "one_ two_ thre four end\n"


@pytest.mark.parametrize("flags", LAYOUTS)
def test_a_payload_in_a_section_is_found(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    plain, blob, program = tmp_path / "plain", tmp_path / "blob", root.path / "agent"
    plain.write_bytes(build(compiler, READS_SECTION, flags))
    blob.write_bytes(PAYLOAD)
    run(["objcopy", f"--add-section=.payload={blob}", str(plain), str(program)])
    program.chmod(0o755)
    assert root.seal().paths("interpreters") == {"agent"}
    assert images_by_kind("bare").run(root.path, program).text == PAYLOAD.decode() + "\n"


def test_in_place_sealing_keeps_the_size_and_nearly_all_bytes(root: SetupRoot, compiler: Compiler) -> None:
    elf = build(compiler, READS_TRAILER, ())
    program = root.write("bin/agent", elf + PAYLOAD + b"PAYLOAD!" + struct.pack("<Q", len(elf)))
    before = program.read_bytes()
    root.seal()
    after = program.read_bytes()
    assert len(after) == len(before)
    assert sum(a != b for a, b in zip(before, after, strict=True)) < 300
    assert after[len(elf) :] == before[len(elf) :]


def test_a_large_file_is_sealed_in_little_memory(root: SetupRoot, compiler: Compiler) -> None:
    elf = build(compiler, READS_TRAILER, ())
    size = 200 << 20
    program = root.write("bin/agent", elf)
    with program.open("r+b") as stream:
        stream.truncate(size)
        stream.seek(size)
        stream.write(PAYLOAD + b"PAYLOAD!" + struct.pack("<Q", size))
    assert peak_memory_kib(str(root.capsule.seal_tree), "--any-root", str(root.path)) < 32 << 10
    assert run([str(program)]).text == PAYLOAD.decode() + "\n"
