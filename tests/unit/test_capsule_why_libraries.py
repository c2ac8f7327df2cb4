"""Why programs can't start for their loader or libraries, in a tree of made files."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.runtime.why import explain as why
from tests.elves import ElfSpec, make_elf
from tests.explained import (
    GLIBC,
    LIBC,
    LOADER,
    MUSL,
    MUSL_LOADER,
    Tree,
    explain,
    glibc,
    kinds,
    link,
    root,
    variables,
    write,
)
from tests.targets import make_tmp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["root", "variables"]

LOADERS = {
    "missing": (make_elf(ElfSpec(interpreter=MUSL)), "loader-missing", "is a program for musl"),
    "a capsule's": (
        make_elf(ElfSpec(interpreter="/tmp/agentcompass-capsules/gone/abi/glibc/ld-linux-x86-64.so.2")),
        "loader-missing",
        "Install the capsule again",
    ),
    "no loader": (make_elf(ElfSpec(interpreter="/text")), "loader-unfit", "no ELF file"),
    "32 bits": (make_elf(ElfSpec(bits=32, interpreter=GLIBC)), "loader-unfit", "64-bit x86_64"),
}


@pytest.mark.parametrize("case", LOADERS)
def test_a_loader_that_cant_be_the_one(root: Path, case: str) -> None:
    data, kind, words = LOADERS[case]
    write(root, "/program", data)
    write(root, "/text", b"text")
    found = explain(root)
    assert kinds(found) == [kind]
    assert words in found.problems[0].message + (found.problems[0].hint or "")


def test_musls_loader_at_glibcs_place_is_told(root: Path) -> None:
    (root / GLIBC.lstrip("/")).unlink()
    write(root, MUSL, MUSL_LOADER)
    link(root, GLIBC, MUSL)
    write(root, "/program", glibc())
    found = explain(root)
    assert kinds(found) == ["other-libc"]
    assert f"{GLIBC} -> {MUSL}" in found.problems[0].message


def cache(entries: Mapping[str, str]) -> bytes:
    """A loader's cache in the new format, behind a few bytes of the old one."""
    strings, places, at = b"", [], 48 + 24 * len(entries)
    for name, path in entries.items():
        places.append((at + len(strings), at + len(strings) + len(name) + 1))
        strings += f"{name}\0{path}\0".encode()
    header = struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(entries), len(strings))
    table = b"".join(struct.pack("<iIIIQ", 3, key, value, 0, 0) for key, value in places)
    return b"ld.so-1.7.0\0" + bytes(20) + header + table + strings


@given(st.binary(max_size=120), st.integers(0, 2**32 - 1))
def test_a_broken_cache_is_no_cache(data: bytes, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = make_tmp(Path(folder) / "root")
        write(root, GLIBC, LOADER)
        write(root, "/lib/x86_64-linux-gnu/libc.so.6", LIBC)
        header = b"glibc-ld.so.cache1.1" + struct.pack("<I", count)
        write(root, "/etc/ld.so.cache", header + data)
        write(root, "/program", glibc("libmissing.so"))
        assert kinds(explain(root)) == ["library-missing"]


def test_glibcs_loader_is_followed_in_its_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = make_elf(ElfSpec(soname="x"))
    for name in ("rpath", "variable", "cached", "default"):
        write(root, f"/{name}/lib{name}.so", library)
    # Each is also where only later looks would find it.
    for name in ("rpath", "variable", "cached"):
        write(root, f"/usr/lib/lib{name}.so", library)
    write(root, "/usr/lib/libdefault.so", library)
    write(root, "/variable/librpath.so", library)
    # Of another architecture: it is passed over.
    write(root, "/rpath/libdefault.so", make_elf(ElfSpec(machine=183)))
    write(root, "/etc/ld.so.cache", cache({"libcached.so": "/cached/libcached.so"}))
    needed = tuple(f"lib{name}.so" for name in ("rpath", "variable", "cached", "default"))
    write(root, "/app/program", glibc(*needed, rpath="$ORIGIN/../rpath"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/variable:")
    found = why("/app/program", Tree(root))
    assert found.problems == []
    assert found.libraries == [
        ("/app/../rpath/librpath.so", "the RPATH of '/app/program'"),
        ("/variable/libvariable.so", "LD_LIBRARY_PATH"),
        ("/cached/libcached.so", "the loader's cache"),
        ("/usr/lib/libdefault.so", "the loader's own folders"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "the loader's own folders"),
    ]
    # RUNPATH comes behind the variable, and counts for no library's library.
    write(root, "/app/program", glibc("librpath.so", runpath="/rpath"))
    assert why("/app/program", Tree(root)).libraries[0] == ("/variable/librpath.so", "LD_LIBRARY_PATH")


def test_a_rpath_counts_for_what_a_library_needs_and_a_runpath_doesnt(root: Path) -> None:
    write(root, "/own/libone.so", make_elf(ElfSpec(soname="libone.so", needed=("libtwo.so",))))
    write(root, "/own/libtwo.so", make_elf(ElfSpec(soname="libtwo.so")))
    write(root, "/program", glibc("libone.so", rpath="/own"))
    assert explain(root).problems == []
    write(root, "/program", glibc("libone.so", runpath="/own"))
    (problem,) = explain(root).problems
    assert (problem.kind, problem.path) == ("library-missing", "/own/libone.so")
    assert "Its library '/own/libone.so' needs the library 'libtwo.so'" in problem.message


def test_a_version_that_glibc_lacks_is_named_with_what_there_is(root: Path) -> None:
    write(
        root,
        "/program",
        glibc(versions={"libc.so.6": ("GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.100")}),
    )
    (problem,) = explain(root).problems
    assert problem.kind == "version-missing"
    assert "needs GLIBC_2.100 (and 1 more) of '/lib/x86_64-linux-gnu/libc.so.6'" in problem.message
    assert "its newest is GLIBC_2.31" in problem.message


def test_musls_loader_is_followed_in_its_order(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, MUSL, MUSL_LOADER)
    library = make_elf(ElfSpec(soname="x", needed=("libc.musl-x86_64.so.1",)))
    for path in ("/variable/libone.so", "/own/libone.so", "/own/libtwo.so", "/listed/libthree.so"):
        write(root, path, library)
    program = {
        "interpreter": MUSL,
        "needed": ("libone.so", "libtwo.so", "libthree.so", "libc.so"),
        "pie": True,
    }
    write(root, "/program", make_elf(ElfSpec(**program, runpath="/own")))  # type: ignore[arg-type]
    assert kinds(explain(root)) == ["library-missing"]
    write(root, "/etc/ld-musl-x86_64.path", b"/elsewhere:/listed/\n/more\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/variable")
    found = explain(root)
    assert found.problems == []
    # The variable comes before what the program says, and libc is the loader itself.
    assert [path for path, _ in found.libraries] == [
        "/variable/libone.so",
        "/own/libtwo.so",
        "/listed/libthree.so",
    ]


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "LD_LIBRARY_PATH"])
def test_a_library_of_the_other_libc_in_a_variable_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    write(
        root,
        "/other/libstdc++.so.6",
        make_elf(ElfSpec(soname="libstdc++.so.6", needed=("libc.musl-x86_64.so.1",))),
    )
    write(root, "/program", glibc("libstdc++.so.6"))
    monkeypatch.setenv(variable, "/other" + ("/libstdc++.so.6" if variable == "LD_PRELOAD" else ""))
    found = explain(root)
    assert found.problems[0].kind == "other-libc"
    assert found.problems[0].message.startswith(f"{variable} brings '/other/libstdc++.so.6' into the process")
    assert f"Unset {variable}" in (found.problems[0].hint or "")


def test_musl_itself_is_known_by_its_files_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "/lib/libc.musl-x86_64.so.1", make_elf(ElfSpec()))
    write(root, "/program", glibc())
    monkeypatch.setenv("LD_PRELOAD", "libc.musl-x86_64.so.1")
    assert kinds(explain(root)) == ["other-libc"]


def test_a_preloaded_file_that_isnt_there_is_only_a_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "/program", glibc())
    monkeypatch.setenv("LD_PRELOAD", "/nothing.so")
    found = explain(root)
    assert found.problems == []
    assert "LD_PRELOAD names '/nothing.so'" in " ".join(found.notes)
