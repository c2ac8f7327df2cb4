"""Shared libraries and addons: they find the capsule's libraries, and never bring a second C library in."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime.process import run

from .capsules import GLIBC_LOADER
from .programs import CPP_LIBRARY, HELLO, USES_COUNT, dynamic_section
from .test_programs import _rpath, _without_loader

if TYPE_CHECKING:
    from pathlib import Path

    from .capsules import Capsule
    from .conftest import Image, Images, SetupRoot
    from .programs import Compiler

ADDON = r"""
#include <map>
#include <string>
#define NAPI extern "C" __attribute__((visibility("default")))
typedef struct napi_env__ *napi_env; typedef struct napi_value__ *napi_value;
NAPI int napi_create_int32(napi_env, int, napi_value *);
NAPI int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
NAPI napi_value napi_register_module_v1(napi_env env, napi_value exports) {
    std::map<std::string, int> numbers; numbers["answer"] = 42;
    napi_value value;
    napi_create_int32(env, numbers["answer"], &value);
    napi_set_named_property(env, exports, "answer", value);
    return exports;
}
"""
ADDON_FLAGS = ("-shared", "-fPIC", "-Wl,--unresolved-symbols=ignore-all")

RESOLVES = r"""
#include <resolv.h>
int parse(void) { unsigned char b[64]; return b64_pton("YWJj", b, sizeof b); }
"""
USES_RESOLVER = (
    '#include <stdio.h>\nint parse(void);\nint main(void) { printf("parsed %d\\n", parse()); return 0; }\n'
)


@pytest.mark.parametrize(
    "flags", [(), ("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN"), ("-Wl,-soname,addon.node",), ("-s",)]
)
def test_an_addon_that_needs_a_cpp_library_loads_in_an_image_without_one(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, capsule: Capsule, flags: tuple[str, ...]
) -> None:
    addon = compiler(ADDON, *ADDON_FLAGS, *flags, name="addon.node", compiler="g++")
    root.copy(addon, "lib/node_modules/a/build/addon.node")
    script = root.write(
        "lib/node_modules/a/cli.js",
        "#!/usr/bin/env node\nconsole.log(require('./build/addon.node').answer)\n",
    )
    sealed = root.seal()
    assert sealed.paths("rpaths") == {"lib/node_modules/a/build/addon.node"}
    for kind in ("bare", "bullseye", "musl"):
        assert images_by_kind(kind).run(root.path, script).text == "42\n"


def test_a_library_with_an_rpath_keeps_its_entries_and_soname(
    root: SetupRoot, compiler: Compiler, capsule: Capsule
) -> None:
    flags = (
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcount.so.1",
        "-Wl,--disable-new-dtags",
        "-Wl,-rpath,$ORIGIN/../x:/opt/y",
    )
    library = root.copy(
        compiler(CPP_LIBRARY, *flags, name="libcount.so.1", compiler="g++"), "lib/libcount.so.1"
    )
    assert root.seal().paths("rpaths") == {"lib/libcount.so.1"}
    assert _rpath(capsule, library) == f"$ORIGIN/../x:/opt/y:{capsule.glibc}"
    assert "[libcount.so.1]" in dynamic_section(library)


@pytest.mark.parametrize(
    ("source", "flags", "reason"),
    [
        ("int one(void) { return 1; }", ("-nostdlib",), "it names no C library"),
        ("int one(void) { return 1; }", ("-Wl,--no-as-needed",), "it needs none of the capsule's libraries"),
    ],
)
def test_a_library_that_needs_nothing_stays(
    root: SetupRoot, compiler: Compiler, source: str, flags: tuple[str, ...], reason: str
) -> None:
    library = root.copy(compiler(source, "-shared", "-fPIC", *flags, name="libone.so"), "lib/libone.so")
    before = library.read_bytes()
    sealed = root.seal()
    assert reason in sealed.reason("lib/libone.so")
    assert library.read_bytes() == before


def test_an_interpreter_line_inside_a_library_is_no_script(root: SetupRoot, compiler: Compiler) -> None:
    source = 'const char *text(void) { return "\\n#!/usr/bin/env python3\\n"; }'
    library = root.copy(compiler(source, "-shared", "-fPIC", name="libtext.so"), "lib/libtext.so")
    before = library.read_bytes()
    assert root.seal().nothing_changed
    assert library.read_bytes() == before


def _musl_library(compiler: Compiler, capsule: Capsule, folder: Path, name: str) -> Path:
    """Return a musl library that needs the musl build of libstdc++, by name."""
    folder.mkdir(exist_ok=True)
    stub = compiler.musl(
        "int _ZSt4cout;", "-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6", name="libstdc++.so.6"
    )
    source = "int answer(void) { return 42; }"
    flags = ("-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-soname,{name}")
    return compiler.musl(source, *flags, name=name, inputs=[stub])


def test_a_musl_library_names_the_private_libraries_by_their_paths(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    library = _musl_library(compiler, capsule, tmp_path / "m", "libanswer.so")
    source = (
        '#include <stdio.h>\nint answer(void);\nint main(void) { printf("%d\\n", answer()); return 0; }\n'
    )
    built = compiler.musl(
        source, "-Wl,-rpath,$ORIGIN/../lib", "-Wl,--unresolved-symbols=ignore-all", inputs=[library]
    )
    program = root.copy(built, "bin/tool")
    root.copy(library, "lib/libanswer.so")
    # A decoy that musl would take: it looks at LD_LIBRARY_PATH before any path of the file.
    root.write("decoys/libstdc++.so.6", b"no library")
    image = images_by_kind("bare")
    report = root.seal_in(image)
    assert report["interpreters"]["count"] == 1
    assert f"[{capsule.musl}/libstdc++.so.6]" in _needed(capsule, root.path / "lib/libanswer.so")
    for kind in ("bare", "bookworm", "musl"):
        result = images_by_kind(kind).run(
            root.path, program, env={"LD_LIBRARY_PATH": str(root.path / "decoys")}
        )
        assert result.text == "42\n"


def _needed(capsule: Capsule, library: Path) -> str:
    listed = run([str(capsule.musl / "ld-musl-x86_64.so.1"), "--list", str(library)]).text
    return " ".join(f"[{line.split()[0]}]" for line in listed.splitlines())


@pytest.mark.parametrize("kind", ["bullseye", "bookworm"])
@pytest.mark.parametrize("opened", [False, True])
def test_a_program_left_alone_still_works_with_its_own_library(
    root: SetupRoot, images_by_kind: Images, compiler: Compiler, kind: str, opened: bool
) -> None:
    """The private libstdc++ needs a newer glibc than these images have: the library must not bring it in."""
    image = images_by_kind(kind)
    # Compiled against nothing newer than bullseye has: no start files of the host's glibc.
    library = compiler(
        CPP_LIBRARY,
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcount.so",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,$ORIGIN",
        name="libcount.so",
        compiler="g++",
    )
    listed = r"""
int count(void); int printf(const char *, ...); void exit(int);
static void run(void) { printf("count %d\n", count()); exit(0); }
__asm__(".globl _start\n_start: xor %ebp, %ebp\nand $-16, %rsp\ncall run_it\n");
__attribute__((used)) void run_it(void) { run(); }
"""
    dlopened = r"""
int printf(const char *, ...); void exit(int);
void *dlopen(const char *, int); void *dlsym(void *, const char *);
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5\n.symver dlsym,dlsym@GLIBC_2.2.5");
static void run(void) {
    void *library = dlopen("libcount.so", 2);
    int (*count)(void) = library ? (int (*)(void))dlsym(library, "count") : 0;
    printf("count %d\n", count ? count() : -1); exit(0);
}
__asm__(".globl _start\n_start: xor %ebp, %ebp\nand $-16, %rsp\ncall run_it\n");
__attribute__((used)) void run_it(void) { run(); }
"""
    flags = ("-nostartfiles", "-no-pie", "-Wl,-rpath,$ORIGIN", "-fno-builtin", "-Wl,--no-as-needed")
    built = (
        compiler(dlopened, *flags, "-l:libdl.so.2") if opened else compiler(listed, *flags, inputs=[library])
    )
    program = root.copy(built, "app/tool")
    beside = root.copy(library, "app/libcount.so")
    assert image.run(root.path, program).text == "count 42\n"
    before = beside.read_bytes()
    report = root.seal_in(image)
    assert report["interpreters"]["count"] == 0, report
    assert beside.read_bytes() == before
    assert "a program that runs on the image's own C library" in str(report["skipped"])
    assert image.run(root.path, program).text == "count 42\n"


@pytest.mark.parametrize("kind", ["bare", "bullseye", "bookworm"])
def test_the_libraries_of_a_sealed_program_find_the_private_ones_too(
    root: SetupRoot,
    images_by_kind: Images,
    compiler: Compiler,
    capsule: Capsule,
    tmp_path: Path,
    kind: str,
) -> None:
    """A library with a DT_RUNPATH doesn't see the program's path: the image's libresolv would come in."""
    flags = (
        "-shared",
        "-fPIC",
        "-Wl,-soname,libparse.so",
        "-Wl,--enable-new-dtags",
        "-Wl,-rpath,$ORIGIN",
        "-Wl,--no-as-needed",
        "-lresolv",
    )
    library = compiler(RESOLVES, *flags, name="libparse.so")
    built = compiler(USES_RESOLVER, "-Wl,-rpath,$ORIGIN/../lib", inputs=[library])
    program = root.copy(_without_loader(capsule, built, tmp_path), "bin/tool")
    root.copy(library, "lib/libparse.so")
    image = images_by_kind(kind)
    report = root.seal_in(image)
    assert report["failures"] == []
    assert image.run(root.path, program).text == "parsed 3\n"
    loader = capsule.glibc / GLIBC_LOADER
    listed = image.run(root.path, loader, "--list", program).text
    assert f"libresolv.so.2 => {capsule.glibc}/libresolv.so.2" in listed


def test_a_library_that_can_also_be_started_stays_a_library(
    root: SetupRoot, compiler: Compiler, capsule: Capsule
) -> None:
    shutil.copy(capsule.glibc / "libc.so.6", root.path / "libc.so.6")
    before = (root.path / "libc.so.6").read_bytes()
    assert root.seal().paths("interpreters") == set()
    assert (root.path / "libc.so.6").read_bytes() == before


def test_a_program_and_its_cpp_library_run_in_a_bare_image(
    root: SetupRoot, image: Image, compiler: Compiler, capsule: Capsule, tmp_path: Path
) -> None:
    library = compiler(
        CPP_LIBRARY, "-shared", "-fPIC", "-Wl,-soname,libcount.so", name="libcount.so", compiler="g++"
    )
    built = compiler(USES_COUNT, "-Wl,-rpath,$ORIGIN", inputs=[library])
    program = root.copy(_without_loader(capsule, built, tmp_path), "app/tool")
    root.copy(library, "app/libcount.so")
    root.copy(_without_loader(capsule, compiler(HELLO, "-s"), tmp_path), "app/hello")
    root.seal()
    assert image.run(root.path, program).text == "count 42\n"
