"""An installed prefix becomes an archive in upstream's layout, with all that it links to."""

from __future__ import annotations

import sys
import sysconfig
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from capsule_build.prefixes import pack_prefix
from capsule_build.recipes import RuntimeChoice, load_recipes
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import InputError, UsageError
from capsule_build.runtime.process import run
from capsule_build.sources import stage_source
from tests.unit.test_sources import planned

SERIES = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSION = ".".join(map(str, sys.version_info[:3]))
PREFIX = Path(sys.base_prefix)


def choice_here() -> RuntimeChoice:
    """The recipe's entry of CPython, for the series that runs the tests."""
    (choice,) = load_recipes(recipes_dir())["python3.12"].runtimes

    def moved(value: str) -> str:
        return value.replace("3.12", SERIES)

    return replace(
        choice,
        series=SERIES,
        marker=moved(choice.marker),
        version_file=moved(choice.version_file),
        prefix_takes=tuple(map(moved, choice.prefix_takes)),
        prefix_leaves=tuple(map(moved, choice.prefix_leaves)),
    )


CHOICE = choice_here()
has_headers = pytest.mark.skipif(
    not (PREFIX / CHOICE.version_file).is_file() or not (PREFIX / CHOICE.marker).is_file(),
    reason="the Python that runs the tests was installed without headers",
)


@pytest.mark.slow
@has_headers
def test_a_real_prefix_is_packed_with_the_libraries_of_its_extensions(tmp_path: Path) -> None:
    # The whole library is packed by the tests that build a capsule of it.
    taken = (
        CHOICE.marker,
        f"lib/python{SERIES}/os.py",
        f"lib/python{SERIES}/lib-dynload",
        "lib/libpython3*.so*",
    )
    small = replace(CHOICE, prefix_takes=taken)
    target = pack_prefix(PREFIX, small, tmp_path / "first.tar")
    with tarfile.open(target) as archive:
        members = {member.name: member for member in archive}
    names = set(members)
    assert f"python/{CHOICE.marker}" in names
    assert f"python/lib/python{SERIES}/os.py" in names
    assert not [name for name in names if "__pycache__" in name or "/site-packages/" in name]
    assert not [name for name in names if Path(name).name in {"libc.so.6", "libm.so.6", "libstdc++.so.6"}]
    assert {member.mtime for member in members.values()} == {0}
    assert {member.mode for member in members.values() if member.isreg()} <= {0o644, 0o755}
    import _ssl

    if getattr(_ssl, "__file__", None):
        listed = run(["ldd", _ssl.__file__]).text
        wanted = {line.split()[0] for line in listed.splitlines() if "libssl" in line or "libcrypto" in line}
        assert wanted
        assert {f"python/lib/{Path(name).name}" for name in wanted} <= names
    again = pack_prefix(PREFIX, small, tmp_path / "second.tar")
    assert again.read_bytes() == target.read_bytes()


@has_headers
def test_a_prefix_is_checked_for_its_version_as_an_archive_is(tmp_path: Path) -> None:
    small = replace(CHOICE, prefix_takes=(CHOICE.marker, CHOICE.version_file))
    staged = stage_source(planned(PREFIX, version=VERSION), {"cpython": small}, tmp_path)
    assert staged == tmp_path / "cpython.tar"
    with pytest.raises(UsageError, match=rf"is version {VERSION}; {SERIES}\.99 is asked for"):
        stage_source(planned(PREFIX, version=f"{SERIES}.99"), {"cpython": small}, tmp_path)


def test_a_folder_without_the_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"has no bin/python{SERIES}"):
        pack_prefix(tmp_path, CHOICE, tmp_path / "target.tar")
    assert not (tmp_path / "target.tar").exists()


def test_all_libraries_that_are_not_found_are_named_with_what_needs_them(tmp_path: Path) -> None:
    prefix = compiled_prefix(tmp_path)
    (tmp_path / "libraries/libcapsuletest.so.1").unlink()
    with pytest.raises(InputError) as caught:
        pack_prefix(prefix, CHOICE, tmp_path / "target.tar")
    assert "small.so needs libcapsuletest.so.1" in caught.value.message
    assert not (tmp_path / "target.tar").exists()


def test_a_library_from_elsewhere_comes_along_and_links_that_leave_the_prefix_are_followed(
    tmp_path: Path,
) -> None:
    prefix = compiled_prefix(tmp_path)
    (tmp_path / "outside.py").write_text("outside = True\n")
    (prefix / f"lib/python{SERIES}/outside.py").symlink_to(tmp_path / "outside.py")
    (prefix / f"lib/python{SERIES}/inside.py").symlink_to("os.py")
    target = pack_prefix(prefix, CHOICE, tmp_path / "target.tar")
    with tarfile.open(target) as archive:
        members = {member.name: member for member in archive}
        reader = archive.extractfile(f"python/lib/python{SERIES}/outside.py")
        assert reader is not None
        assert reader.read() == b"outside = True\n"
    assert members[f"python/lib/python{SERIES}/inside.py"].linkname == "os.py"
    assert members["python/lib/libcapsuletest.so.1"].isreg()
    assert "python/licenses/LICENSE.libcapsuletest.so.1.txt" not in members


def compiled_prefix(folder: Path) -> Path:
    """A small prefix: a program, a module, and an extension that needs a library of another folder."""
    prefix, libraries = folder / "prefix", folder / "libraries"
    library = prefix / f"lib/python{SERIES}/lib-dynload"
    for path in (prefix / "bin", library, libraries):
        path.mkdir(parents=True)
    (prefix / f"lib/python{SERIES}/os.py").write_text("")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    (folder / "needed.c").write_text("int capsule_test(void) { return 1; }\n")
    (folder / "small.c").write_text("int capsule_test(void); int small(void) { return capsule_test(); }\n")
    compiler = sysconfig.get_config_var("CC").split()[0]
    shared = ("-shared", "-fPIC")
    needed = libraries / "libcapsuletest.so.1"
    run([compiler, str(folder / "main.c"), "-o", str(prefix / CHOICE.marker)])
    run([compiler, *shared, "-Wl,-soname,libcapsuletest.so.1", str(folder / "needed.c"), "-o", str(needed)])
    run(
        [
            *(compiler, *shared, str(folder / "small.c"), str(needed), f"-Wl,-rpath,{libraries}"),
            *("-o", str(library / "small.so")),
        ]
    )
    return prefix
