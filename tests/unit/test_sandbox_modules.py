"""Which modules a task can import, and what it can read by them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.sandbox.modules import Modules, Source, collect, from_folder, imported
from capsule_build.sandbox.trees import FolderTree, PackedTree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a", {"a"}),
        ("import a.b as c, d\nimport os, sys", {"a", "d"}),
        ("from a.b import c", {"a"}),
        ("from a import (\n  b,\n  c)", {"a"}),
        ("from . import x\nfrom .y import z", set()),
        ("def f():\n    import inner", {"inner"}),
        ("x = 1; import late", {"late"}),
        ("if 1: import a", {"a"}),
        ("importlib.import_module('dyn.x')\n__import__(\"two\")", {"dyn", "two"}),
        ("import capsule\nfrom capsule import task", set()),
        ("importance = 1\nfromage = 2", set()),
    ],
)
def test_the_names_that_a_module_imports_are_found(source: str, names: set[str]) -> None:
    assert imported(source.encode()) == names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "none"))
    top = tmp_path / "work"
    (top / "pkg" / "sub").mkdir(parents=True)
    (top / "pkg" / "__init__.py").write_text("from . import sub\nimport helper")
    (top / "pkg" / "sub" / "__init__.py").write_text("")
    (top / "pkg" / "data.txt").write_text("data")
    (top / "helper.py").write_text("import deeper")
    (top / "deeper.py").write_text("X = 1")
    (top / "secrets_of_mine.py").write_text("KEY = 1")
    (top / "notes.txt").write_text("private")
    (top / "plain").mkdir()
    (top / "plain" / "inner.py").write_text("")
    (top / "plain" / "private.txt").write_text("private")
    (tmp_path / "outside.py").write_text("OUT = 1")
    (top / "link.py").symlink_to("../outside.py")
    return top


def test_a_file_gets_what_it_names_and_what_that_names(folder: Path) -> None:
    modules = from_folder(str(folder), b"import pkg", ())
    assert (modules.module("pkg") or {})["kind"] == "package"
    assert (modules.module("pkg.sub") or {})["kind"] == "package"
    assert (modules.module("helper") or {})["source"] == "import deeper"
    assert modules.module("deeper") is not None
    assert modules.module("secrets_of_mine") is None


def test_a_module_that_is_a_symlink_to_outside_is_not_there(folder: Path) -> None:
    assert from_folder(str(folder), b"import link", ()).module("link") is None


@pytest.mark.parametrize(
    "name",
    ["../outside", "pkg/../secrets_of_mine", "/etc/passwd", "pkg..sub", "", "pkg.", ".pkg", None, 5, ["pkg"]],
)
def test_a_name_that_is_no_name_finds_nothing(folder: Path, name: object) -> None:
    assert from_folder(str(folder), b"import pkg", ()).module(name) is None


def test_data_is_a_packages_own(folder: Path) -> None:
    modules = from_folder(str(folder), b"import pkg, plain", ())
    assert base64.b64decode((modules.data("pkg", "data.txt") or {})["data"]) == b"data"
    assert (modules.data("pkg", "sub") or {})["names"] == ["__init__.py"]
    assert modules.data(None, "pkg/data.txt") == modules.data("pkg", "data.txt")
    assert modules.module("plain.inner") is not None
    # A folder without __init__.py may be anything.
    assert modules.data("plain", "private.txt") is None


@pytest.mark.parametrize(
    ("package", "path"),
    [
        ("pkg", "../notes.txt"),
        ("pkg", "/etc/passwd"),
        ("pkg", "sub/../../notes.txt"),
        ("pkg", "./data.txt"),
        ("pkg", "data.txt\0"),
        ("", "notes.txt"),
        (None, "notes.txt"),
        (None, "../work/notes.txt"),
        (None, "/etc/passwd"),
        ("secrets_of_mine", ""),
        ("..", "notes.txt"),
        (5, "x"),
        ("pkg", 5),
        ("pkg", None),
    ],
)
def test_data_that_is_not_a_packages_own_is_not_there(folder: Path, package: object, path: object) -> None:
    assert from_folder(str(folder), b"import pkg", ()).data(package, path) is None


@given(st.text(), st.one_of(st.none(), st.text()), st.text())
def test_no_request_finds_more_than_the_trees_hold(name: str, package: str | None, path: str) -> None:
    modules = Modules(
        [Source(PackedTree({"p/__init__.py": b"", "p/d": b"x", "other": b"no"}), frozenset("p"), "")]
    )
    found = modules.module(name)
    assert found is None or name in {"p", "p.__init__"}
    data = modules.data(package, path)
    assert data is None or data["kind"] == "folder" or base64.b64decode(data["data"]) in {b"x", b""}


def test_a_c_extension_is_named_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "none"))
    (tmp_path / "np" / "core").mkdir(parents=True)
    (tmp_path / "np" / "__init__.py").write_text("from .core import fast")
    (tmp_path / "np" / "core" / "__init__.py").write_text("")
    (tmp_path / "np" / "core" / "fast.cpython-312-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    (tmp_path / "np" / "core" / "faster.txt").write_text("")
    modules = from_folder(str(tmp_path), b"import np", ())
    assert modules.module("np.core.fast") == {
        "kind": "extension",
        "path": "fast.cpython-312-x86_64-linux-gnu.so",
    }
    assert modules.module("np.core.faster") is None


def test_installed_packages_come_from_named_folders_and_the_active_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    (site / "fromenv.py").write_text("import two")
    (site / "both.py").write_text("WHERE = 'env'")
    (site / "unused.py").write_text("")
    named = tmp_path / "packages"
    named.mkdir()
    (named / "both.py").write_text("WHERE = 'named'")
    (named / "two.py").write_text("import fromenv")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    modules = from_folder(str(work), b"", [str(named)])
    assert (modules.module("fromenv") or {})["path"] == "/packages/fromenv.py"
    assert "named" in (modules.module("both") or {})["source"]
    own, installed = collect(str(work), b"import two, both", [str(named)])
    assert own == {}
    assert set(installed) == {"two.py", "both.py", "fromenv.py"}
    assert b"named" in installed["both.py"]


def test_what_is_packed_is_found_as_it_was(folder: Path) -> None:
    own, installed = collect(str(folder), b"import pkg, plain", ())
    assert installed == {}
    assert set(own) == {
        "pkg/__init__.py",
        "pkg/sub/__init__.py",
        "pkg/data.txt",
        "helper.py",
        "deeper.py",
        "plain/inner.py",
    }
    for tree in (PackedTree(own), FolderTree(str(folder))):
        assert tree.kind("pkg") == "folder"
        assert tree.kind("pkg/data.txt") == "file"
        assert tree.kind("nope") is None
        assert tree.names("pkg/sub") == ["__init__.py"]


def test_a_source_in_another_encoding_is_read_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "none"))
    (tmp_path / "old.py").write_bytes("# coding: latin-1\nX = 'é'\n".encode("latin-1"))
    (tmp_path / "marked.py").write_bytes(b"\xef\xbb\xbfX = 1\n")
    modules = from_folder(str(tmp_path), b"import old, marked", ())
    assert "'é'" in (modules.module("old") or {})["source"]
    assert (modules.module("marked") or {})["source"] == "X = 1\n"
