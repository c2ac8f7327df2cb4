"""ELF programs: they get the private loader only where the image's own can't load them."""

from __future__ import annotations

import os
import shutil
import struct
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run

from .capsules import GLIBC_LOADER, MUSL_LOADER
from .programs import CPP_LIBRARY, HELLO, USES_COUNT, dynamic_section, program_headers

if TYPE_CHECKING:
    from pathlib import Path

    from .capsules import Capsule
    from .conftest import Images, SetupRoot
    from .programs import Compiler

NEW_SYMBOL = r"""
#include <stdio.h>
#include <string.h>
__attribute__((weak)) extern size_t strlcpy(char *, const char *, size_t);
__asm__(".symver strlcpy,strlcpy@GLIBC_2.38");
int main(void) { char to[8]; strlcpy(to, "hello", sizeof to); puts(to); return 0; }
"""
MISSING_LOADER = "/lib/ld-linux-that-is-not-here.so.2"


def _without_loader(capsule: Capsule, program: Path, folder: Path) -> Path:
    """Return a copy that asks for a glibc loader that no image has."""
    copy = folder / program.name
    shutil.copy(program, copy)
    run([str(capsule.root / "libexec/patchelf"), "--set-interpreter", MISSING_LOADER, str(copy)])
    return copy


LAYOUTS = [
    pytest.param((), id="pie"),
    pytest.param(("-no-pie",), id="no-pie"),
    pytest.param(("-s",), id="stripped"),
    pytest.param(("-no-pie", "-s"), id="stripped-no-pie"),
    pytest.param(("-Wl,-z,noseparate-code",), id="no-separate-code"),
    pytest.param(("-Wl,-z,max-page-size=2097152",), id="aligned-2MB"),
    pytest.param(("-Wl,-z,now", "-Wl,-z,relro"), id="relro"),
    pytest.param(("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib"), id="rpath"),
    pytest.param(("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib"), id="runpath"),
    pytest.param(("-fuse-ld=gold",), id="gold"),
]


@pytest.mark.parametrize("flags", LAYOUTS)
def test_a_glibc_program_runs_where_there_is_no_glibc(
    root: SetupRoot,
    images_by_kind: Images,
    compiler: Compiler,
    capsule: Capsule,
    tmp_path: Path,
    flags: tuple[str, ...],
) -> None:
    program = root.copy(_without_loader(capsule, compiler(HELLO, *flags), tmp_path), "bin/hello")
    sealed = root.seal()
    assert sealed.paths("interpreters") == {"bin/hello"}
    assert sealed.paths("rpaths") == {"bin/hello"}
    assert str(capsule.glibc / GLIBC_LOADER) in program_headers(program)
    for kind in ("bare", "musl", "bookworm"):
        assert images_by_kind(kind).run(root.path, program, "1").text == "hello 2\n"


@pytest.mark.parametrize("flags", LAYOUTS[:7])
def test_a_musl_program_runs_where_there_is_no_musl(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, flags: tuple[str, ...]
) -> None:
    program = root.copy(compiler.musl(HELLO, *flags), "bin/hello")
    # The host, whose loader decides, has musl where musl-gcc is: in the bare image nothing has.
    sealed = root.seal_in(images_by_kind("bare"))
    assert sealed["interpreters"]["count"] == 1
    for kind in ("bare", "bookworm", "musl"):
        assert images_by_kind(kind).run(root.path, program, "1").text == "hello 2\n"


@pytest.mark.parametrize(
    ("kind", "changed"), [("bare", True), ("musl", True), ("bookworm", False), ("trixie", False)]
)
def test_a_glibc_program_is_sealed_only_where_its_loader_is_missing(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, kind: str, changed: bool
) -> None:
    program = root.copy(compiler(HELLO), "bin/hello")
    before, inode = program.read_bytes(), program.stat().st_ino
    report = root.seal_in(images_by_kind(kind))
    assert (program.read_bytes() != before) == changed
    assert (program.stat().st_ino != inode) == changed
    if not changed:
        assert "the image's own loader can load it" in str(report["skipped"])
    assert images_by_kind(kind).run(root.path, program).text == "hello 1\n"


@pytest.mark.parametrize(("kind", "changed"), [("bare", True), ("bookworm", True), ("musl", False)])
def test_a_musl_program_is_sealed_only_where_its_loader_is_missing(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, kind: str, changed: bool
) -> None:
    program = root.copy(compiler.musl(HELLO), "bin/hello")
    before = program.read_bytes()
    root.seal_in(images_by_kind(kind))
    assert (program.read_bytes() != before) == changed
    assert images_by_kind(kind).run(root.path, program).text == "hello 1\n"


@pytest.mark.parametrize(("kind", "changed"), [("bullseye", True), ("bookworm", True), ("trixie", False)])
def test_a_program_that_needs_a_newer_glibc_is_sealed_where_the_images_is_too_old(
    root: SetupRoot,
    images_by_kind: Images,
    compiler: Compiler,
    capsule: Capsule,
    kind: str,
    changed: bool,
) -> None:
    source = compiler(
        NEW_SYMBOL, "-Wl,--unresolved-symbols=ignore-all", f"-L{capsule.glibc}", f"{capsule.glibc}/libc.so.6"
    )
    program = root.copy(source, "bin/new")
    image = images_by_kind(kind)
    assert (image.run(root.path, program, check=False).code != 0) == changed
    report = root.seal_in(image)
    assert report["interpreters"]["count"] == int(changed)
    assert image.run(root.path, program).text == "hello\n"


def test_a_loader_that_belongs_to_another_libc_is_not_believed(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    """Some musl images have a link to musl at the glibc loader's place, and musl would say yes."""
    link = root.path / GLIBC_LOADER
    link.symlink_to(f"/lib/{MUSL_LOADER}")
    program = compiler(HELLO, f"-Wl,--dynamic-linker={link}")
    program = root.copy(program, "bin/hello")
    image = images_by_kind("musl")
    report = root.seal_in(image)
    assert report["interpreters"]["count"] == 1
    assert image.run(root.path, program).text == "hello 1\n"


def test_a_loader_that_hangs_is_not_waited_for(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    loader = tmp_path / "ld-linux-hangs.so.2"
    # It looks like glibc's loader: it has its name and symbol versions.
    versions = tmp_path / "versions"
    versions.write_text("V1 { global: *; };\n")
    source = "#include <unistd.h>\n#include <stdlib.h>\nvoid start(void) { for (;;) pause(); }\n"
    hangs = compiler(
        source,
        "-shared",
        "-fPIC",
        "-Wl,-e,start",
        "-Wl,-soname,ld-linux-hangs.so.2",
        f"-Wl,--version-script={versions}",
        "-nostartfiles",
        name="ld-linux-hangs.so.2",
    )
    run([str(capsule.root / "libexec/patchelf"), "--add-needed", "libc.so.6", str(hangs)])
    shutil.copy(hangs, loader)
    program = root.copy(compiler(HELLO, f"-Wl,--dynamic-linker={loader}"), "bin/hello")
    sealed = root.seal(tool=capsule.seal_tree)
    assert sealed.paths("interpreters") == {"bin/hello"}
    assert run([str(program)]).text == "hello 1\n"


def test_a_runpath_becomes_one_rpath_with_its_entries_in_order(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    flags = ("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib:${ORIGIN}/own:/opt/x")
    program = root.copy(_without_loader(capsule, compiler(HELLO, *flags), tmp_path), "bin/hello")
    root.seal()
    section = dynamic_section(program)
    assert "(RUNPATH)" not in section
    assert section.count("(RPATH)") == 1
    assert _rpath(capsule, program) == f"$ORIGIN/../lib:${{ORIGIN}}/own:/opt/x:{capsule.glibc}"


def _rpath(capsule: Capsule, program: Path) -> str:
    """Read the run path as a loader does: patchelf and readelf look in the section of strings only."""
    data = program.read_bytes()
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * i) for i in range(phnum)]
    loads = [h for h in headers if h[0] == 1]

    def offset(address: int) -> int:
        load = next(h for h in loads if h[3] <= address < h[3] + h[5])
        return int(load[2] + address - load[3])

    dynamic = next(h for h in headers if h[0] == 2)
    entries = [struct.unpack_from("<qQ", data, dynamic[2] + 16 * i) for i in range(dynamic[5] // 16)]
    strings = next(value for tag, value in entries if tag == 5)
    value = next(value for tag, value in entries if tag == 15)
    start = offset((strings + value) % 2**64)
    return data[start : data.index(b"\0", start)].decode()


def test_a_library_beside_the_program_stays_first(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    own = compiler(
        'const char *zlibVersion(void) { return "own"; }',
        "-shared",
        "-fPIC",
        "-Wl,-soname,libz.so.1",
        name="libz.so.1",
    )
    source = (
        "int puts(const char *);\nconst char *zlibVersion(void);\nint main(void) { puts(zlibVersion()); }"
    )
    built = compiler(source, "-Wl,-rpath,$ORIGIN/../lib", inputs=[own])
    program = root.copy(_without_loader(capsule, built, tmp_path), "bin/tool")
    root.copy(own, "lib/libz.so.1")
    root.seal()
    assert images_by_kind("bare").run(root.path, program).text == "own\n"


def test_the_private_libraries_win_over_decoys_in_the_environment(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    decoy = compiler(
        "__attribute__((constructor)) static void die(void) { __builtin_trap(); }",
        "-shared",
        "-fPIC",
        "-nostdlib",
        name="decoy.so",
    )
    folder = root.path / "decoys"
    for name in ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"):
        root.copy(decoy, f"decoys/{name}")
    library = compiler(
        CPP_LIBRARY, "-shared", "-fPIC", "-Wl,-soname,libcount.so", name="libcount.so", compiler="g++"
    )
    built = compiler(USES_COUNT, "-Wl,-rpath,$ORIGIN", inputs=[library])
    program = root.copy(_without_loader(capsule, built, tmp_path), "bin/tool")
    root.copy(library, "bin/libcount.so")
    root.seal()
    # The variable is set inside: the decoys would end the program that enters the image.
    started = ('LD_LIBRARY_PATH="$0" exec "$@"', folder, program)
    result = images_by_kind("bare").run(root.path, capsule.bash, "-c", *started)
    assert result.text == "count 42\n"


def test_alignment_of_2_mb_is_kept(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    built = compiler(HELLO, "-Wl,-z,max-page-size=2097152")
    program = root.copy(_without_loader(capsule, built, tmp_path), "bin/hello")
    root.seal()
    loads = [line for line in program_headers(program).splitlines() if line.strip().startswith("LOAD")]
    assert len(loads) >= 4
    assert all(line.split()[-1] == "0x200000" for line in loads)


def test_modes_owner_times_and_links_of_a_program_are_kept(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    source = _without_loader(capsule, compiler(HELLO), tmp_path)
    for mode in (0o555, 0o6755, 0o4711):
        program = root.copy(source, f"bin/{mode:o}", 0o600)
        os.chown(program, 1234, 2345)
        program.chmod(mode)
        os.utime(program, ns=(10**18, 10**18 + 5))
    root.seal()
    for mode in (0o555, 0o6755, 0o4711):
        status = (root.path / f"bin/{mode:o}").stat()
        assert (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, 1234, 2345)
        assert status.st_mtime_ns == 10**18 + 5
        assert images_by_kind("bare").run(root.path, root.path / f"bin/{mode:o}").text == "hello 1\n"


def test_a_file_capability_is_kept(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    program = root.copy(_without_loader(capsule, compiler(HELLO), tmp_path), "bin/hello")
    run(["setcap", "cap_net_bind_service=ep", str(program)])
    os.setxattr(program, "user.note", b"mine")
    before = {name: os.getxattr(program, name) for name in os.listxattr(program)}
    assert "security.capability" in before
    root.seal()
    assert {name: os.getxattr(program, name) for name in os.listxattr(program)} == before


def test_a_file_capability_that_cannot_be_kept_is_refused_by_name(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    program = root.copy(_without_loader(capsule, compiler(HELLO), tmp_path), "bin/hello")
    run(["setcap", "cap_net_bind_service=ep", str(program)])
    for path in (root.path, root.path / "bin", program):
        os.chown(path, 1234, 1234, follow_symlinks=False)
    run(["setcap", "cap_net_bind_service=ep", str(program)])
    before = program.read_bytes()
    argv = [str(capsule.seal_tree), "--json", "--any-root", str(root.path)]
    for parent in (*root.path.parents, *capsule.root.parents):
        parent.chmod(parent.stat().st_mode | 0o055)
    result = run(["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", *argv], check=False)
    assert result.code == 1
    assert "its attribute security.capability can't be kept" in result.text
    assert program.read_bytes() == before


def test_a_program_that_nothing_here_can_load_is_left_alone_with_the_reason(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    missing = compiler(
        "int x(void) { return 1; }",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libgui-that-nobody-has.so.9",
        name="libgui.so",
    )
    built = compiler("int x(void); int main(void) { return x(); }", inputs=[missing])
    program = root.copy(_without_loader(capsule, built, tmp_path), "bin/tool")
    before = program.read_bytes()
    sealed = root.seal()
    assert "libgui-that-nobody-has.so.9" in sealed.reason("bin/tool")
    assert program.read_bytes() == before


def test_what_is_no_program_for_a_loader_is_left_alone_with_the_reason(
    root: SetupRoot, compiler: Compiler, tmp_path: Path
) -> None:
    plain = bytearray(compiler(HELLO).read_bytes())
    class32, big, other, core, kind = (bytearray(plain) for _ in range(5))
    class32[4], big[5] = 1, 2
    struct.pack_into("<H", other, 18, 243)
    struct.pack_into("<H", core, 16, 4)
    struct.pack_into("<H", kind, 16, 99)
    files = {
        "static": (compiler(HELLO, "-static").read_bytes(), "it is statically linked"),
        "static-pie": (compiler(HELLO, "-static-pie").read_bytes(), "it is statically linked (static-pie)"),
        "musl-static": (compiler.musl(HELLO, "-static").read_bytes(), "it is statically linked"),
        "object.o": (compiler(HELLO, "-c", name="x.o").read_bytes(), "it is a relocatable object"),
        "core": (bytes(core), "it is a core file"),
        "class32": (bytes(class32), "it is a 32-bit ELF file"),
        "big-endian": (bytes(big), "it is made for another machine: a big-endian one"),
        "riscv": (bytes(other), "it is made for another machine: riscv"),
        "unknown": (bytes(kind), "it is a damaged ELF file: its type is unknown"),
        "magic": (b"\x7fELF", "it is a truncated ELF file"),
        "head": (bytes(plain[:64]), "it is a truncated ELF file"),
        "half": (bytes(plain[: len(plain) // 2]), "it is a truncated ELF file"),
        "android": (
            compiler(HELLO, "-Wl,--dynamic-linker=/system/bin/linker64").read_bytes(),
            "it asks for the loader /system/bin/linker64, which is neither glibc's nor musl's",
        ),
    }
    for name, (content, _) in files.items():
        root.write(f"bin/{name}", content)
    sealed = root.seal()
    assert sealed.code == 0
    assert sealed.nothing_changed
    for name, (content, reason) in files.items():
        assert sealed.reason(f"bin/{name}") == reason
        assert (root.path / f"bin/{name}").read_bytes() == content


def test_a_program_without_section_headers_is_sealed(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, tmp_path: Path
) -> None:
    built = compiler(HELLO, f"-Wl,--dynamic-linker={MISSING_LOADER}")
    data = bytearray(built.read_bytes())
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 0, 0, 0)
    program = root.write("bin/hello", bytes(data))
    sealed = root.seal()
    assert sealed.paths("interpreters") == {"bin/hello"}
    assert images_by_kind("bare").run(root.path, program).text == "hello 1\n"


def test_a_program_without_room_and_section_headers_is_refused_by_name(
    root: SetupRoot, compiler: Compiler
) -> None:
    built = compiler(HELLO, f"-Wl,--dynamic-linker={MISSING_LOADER}", "-Wl,-z,noseparate-code")
    data = bytearray(built.read_bytes())
    shoff = struct.unpack_from("<Q", data, 40)[0]
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 0, 0, 0)
    _fill_gaps_between_segments(data)
    program = root.write("bin/hello", bytes(data[:shoff]))
    before = program.read_bytes()
    sealed = root.seal()
    assert sealed.code == 1
    assert "it has no room inside, and no section headers" in sealed.reason("bin/hello")
    assert program.read_bytes() == before


def _fill_gaps_between_segments(data: bytearray) -> None:
    phoff, phnum = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    headers = [struct.unpack_from("<IIQQQQQQ", data, phoff + 56 * i) for i in range(phnum)]
    loads = sorted((h[2], h[2] + h[5]) for h in headers if h[0] == 1)
    for (_, end), (begin, _) in pairwise(loads):
        data[end:begin] = b"\xff" * (begin - end)


def test_sealing_twice_gives_the_same_bytes(
    root: SetupRoot, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    program = root.copy(_without_loader(capsule, compiler(HELLO), tmp_path), "bin/hello")
    root.seal(tool=capsule.seal_tree)
    first, inode = program.read_bytes(), program.stat().st_ino
    again = root.seal(tool=capsule.seal_tree)
    assert again.nothing_changed
    assert again.report["already_sealed"] == 1
    assert (program.read_bytes(), program.stat().st_ino) == (first, inode)
