"""The user's own inputs: what is accepted, in which form it is brought, and how it is refused."""

from __future__ import annotations

import gzip
import lzma
import zipfile
from typing import TYPE_CHECKING

import pytest
import zstandard

from capsule_build.cli.definitions import load_definitions
from capsule_build.plan import BuildOptions, PlannedInput, Role, make_plan
from capsule_build.recipes import RuntimeChoice, load_recipes
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import InputError, UsageError
from capsule_build.runtime.platforms import Platform
from capsule_build.sources import parse_sources, stage_source
from tests import archives

if TYPE_CHECKING:
    from pathlib import Path

CPYTHON = RuntimeChoice(
    name="cpython",
    component="cpython-3.12",
    option="--python-version",
    series="3.12",
    in_version=True,
    marker="bin/python3.12",
    version_file="include/python3.12/patchlevel.h",
    version_pattern=r'#define PY_VERSION\s+"(\d+)\.(\d+)\.(\d+)"',
    texts="",
    linked=(),
    prefix_takes=(),
    prefix_leaves=(),
)
CHOICES = {"cpython": CPYTHON}
FILES = {
    "python/bin/python3.12": b"program",
    "python/include/python3.12/patchlevel.h": b'#define PY_VERSION      "3.12.1"\n',
}


def planned(source: Path, *, name: str = "cpython", version: str = "3.12.1") -> PlannedInput:
    role = Role.RUNTIME if name == "cpython" else Role.SHIPPED
    file = "" if name == "cpython" else f"pinned{source.suffix}"
    return PlannedInput(name, name, role, Platform("x86_64", "glibc"), version, file, None, source)


def write_archive(folder: Path, suffix: str, files: dict[str, bytes] = FILES) -> Path:
    path = folder / f"given{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    tar = archives.tar_bytes(files)
    if suffix in {".tar.gz", ".tgz"}:
        tar = gzip.compress(tar)
    elif suffix == ".tar.xz":
        tar = lzma.compress(tar)
    elif suffix == ".tar.zst":
        tar = zstandard.compress(tar)
    path.write_bytes(tar)
    return path


def test_sources_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "a=b").write_bytes(b"")
    assert parse_sources([f"cpython={tmp_path}/a=b", f"uv={tmp_path}"]) == {
        "cpython": tmp_path / "a=b",
        "uv": tmp_path,
    }


@pytest.mark.parametrize("value", ["cpython", "=x", "cpython=", ""])
def test_what_is_not_a_name_and_a_path_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="NAME=PATH"):
        parse_sources([value])


def test_a_name_is_given_once_and_a_path_is_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="twice"):
        parse_sources([f"uv={tmp_path}", f"uv={tmp_path}"])
    with pytest.raises(UsageError, match="there is no such file"):
        parse_sources([f"uv={tmp_path}/nothing"])


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".tar", ".zip"])
def test_an_archive_that_the_builds_shell_unpacks_is_taken_as_it_is(tmp_path: Path, suffix: str) -> None:
    source = write_archive(tmp_path, suffix)
    folder = tmp_path / "staged"
    folder.mkdir()
    assert stage_source(planned(source), CHOICES, folder) == source
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("suffix", [".tar.zst", ".tgz"])
def test_an_archive_that_it_cant_unpack_is_brought_as_a_tar(tmp_path: Path, suffix: str) -> None:
    source = write_archive(tmp_path, suffix)
    folder = tmp_path / "staged"
    folder.mkdir()
    staged = stage_source(planned(source), CHOICES, folder)
    assert staged == folder / "cpython.tar"
    assert staged.read_bytes() == archives.tar_bytes(FILES)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".tar.zst", ".tgz", ".tar", ".zip"])
def test_another_version_than_the_one_asked_for_is_refused(tmp_path: Path, suffix: str) -> None:
    source = write_archive(tmp_path, suffix)
    with pytest.raises(UsageError, match=r"is version 3\.12\.1; 3\.12\.10 is asked for") as caught:
        stage_source(planned(source, version="3.12.10"), CHOICES, tmp_path)
    assert caught.value.hint == "Ask for it with --python-version 3.12.1."


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz", ".tar.zst", ".tgz", ".zip"])
def test_a_damaged_archive_is_an_error_that_names_it(tmp_path: Path, suffix: str) -> None:
    source = write_archive(tmp_path, suffix)
    content = source.read_bytes()
    source.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"given\..*(damaged|decompressed)"):
        stage_source(planned(source), CHOICES, tmp_path)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    source = write_archive(tmp_path, ".tar.gz", {"other/file": b"text"})
    with pytest.raises(InputError, match=r"no include/python3\.12/patchlevel\.h") as caught:
        stage_source(planned(source), CHOICES, tmp_path)
    assert "bin/python3.12" in str(caught.value.hint)


def test_a_form_that_is_not_known_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "python.rar"
    source.write_bytes(b"Rar!")
    with pytest.raises(UsageError, match="form isn't known") as caught:
        stage_source(planned(source), CHOICES, tmp_path)
    assert ".tar.zst" in str(caught.value.hint)


def test_a_folder_is_refused_where_the_recipe_takes_archives_only(tmp_path: Path) -> None:
    source = tmp_path / "prefix"
    source.mkdir()
    with pytest.raises(UsageError, match="is a folder; an archive is needed"):
        stage_source(planned(source), CHOICES, tmp_path)


def test_a_wheel_stands_for_a_component_by_its_own_version(tmp_path: Path) -> None:
    wheel = tmp_path / "uv-0.12.10-py3-none-musllinux_1_1_x86_64.whl"
    wheel.write_bytes(b"")
    assert stage_source(planned(wheel, name="uv", version="0.12.10"), CHOICES, tmp_path) == wheel
    with pytest.raises(UsageError, match=r"0\.12\.11 is asked for"):
        stage_source(planned(wheel, name="uv", version="0.12.11"), CHOICES, tmp_path)


def test_a_wheel_under_another_name_is_told_which_name_it_needs(tmp_path: Path) -> None:
    wheel = tmp_path / "uv.whl"
    wheel.touch()
    with pytest.raises(UsageError, match="is not a wheel's name") as raised:
        stage_source(planned(wheel, name="uv", version="0.12.10"), {}, tmp_path)
    assert "NAME-VERSION-PYTHON-ABI-PLATFORM.whl" in (raised.value.hint or "")
    renamed = write_archive(tmp_path, ".zip").rename(tmp_path / "renamed.tar.gz")
    with pytest.raises(UsageError, match="is a zip archive or a wheel, which its name doesn't say"):
        stage_source(planned(renamed), CHOICES, tmp_path)


def test_a_runtime_is_called_by_its_name_or_as_its_pins_call_it_and_its_texts_can_be_given(
    tmp_path: Path,
) -> None:
    recipes, pins = load_recipes(recipes_dir()), load_definitions(recipes_dir()).pins

    def names(recipe: str, sources: dict[str, Path]) -> dict[str, bool]:
        options = BuildOptions("glibc", "x86_64", "x86_64", {"cpython": version[recipe]}, sources)
        plan = make_plan(recipes[recipe], options, pins, dist=tmp_path)
        return {item.name: item.source is not None for item in plan.inputs if "cpython" in item.component}

    version = {"python3.12": "3.12.10", "python3.13": "3.13.5"}
    assert names("python3.12", {}) == {"cpython": False, "cpython/texts": False}
    assert names("python3.12", {"cpython": tmp_path}) == {"cpython": True}
    assert names("python3.12", {"cpython": tmp_path, "cpython-full": tmp_path}) == {
        "cpython": True,
        "cpython/texts": True,
    }
    assert names("python3.12", {"cpython-full": tmp_path}) == {"cpython": False, "cpython/texts": True}
    assert names("python3.13", {}) == {"cpython": False}
    assert names("python3.13", {"cpython-3.13": tmp_path}) == {"cpython": True}
    with pytest.raises(UsageError, match="no input of that name"):
        names("python3.13", {"cpython-full": tmp_path})
