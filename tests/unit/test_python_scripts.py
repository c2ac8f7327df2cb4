"""What the build's own Python scripts decide: build traces and certificates."""

from __future__ import annotations

import importlib.util
import os
import shlex
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from capsule_build.resources import templates_dir

NEW = "/tmp/agentcompass-capsules/python3.12-3.12.1-linux-x86_64-glibc/runtime/python"


def script(name: str) -> Any:
    """Load a script of the build as a module."""
    spec = importlib.util.spec_from_file_location(name, templates_dir() / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cleaner() -> Any:
    return script("build_traces").Cleaner("/install", NEW)


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        ("/install", NEW),
        ("/install/lib/python3.12", f"{NEW}/lib/python3.12"),
        ("-I/install/include -L/install/lib", f"-I{NEW}/include -L{NEW}/lib"),
        ("/installed/lib", ""),
        ("-O2 -I/build/deps/include -g", "-O2 -g"),
        ("-L/tools/lib -lm", "-lm"),
        ("-Wl,-rpath,/install/lib -ldl", "-ldl"),
        ("LD_LIBRARY_PATH=/build/Python-3.12.10 ./python -E", "./python -E"),
        ("-fdebug-default-version=4 -O3 -flto=thin", "-O3"),
        ("/usr/bin/install -c -m 644", "/usr/bin/install -c -m 644"),
        ("/usr/share/zoneinfo:/usr/lib/zoneinfo", "/usr/share/zoneinfo:/usr/lib/zoneinfo"),
        ("./Modules/main.c Include/Python.h", "./Modules/main.c Include/Python.h"),
        ("/* Don't use ncurses extensions */", "/* Don't use ncurses extensions */"),
        ("./install/lib", ""),
        ("./install", ""),
        ("./install-sh -c", "./install-sh -c"),
        ("", ""),
    ],
)
def test_values_lose_the_machine_that_they_were_built_on(cleaner: Any, value: str, cleaned: str) -> None:
    assert cleaner.value(value) == cleaned


@pytest.mark.parametrize(
    ("name", "value", "cleaned"),
    [
        ("CC", "/tmp/mpy2/cc", "cc"),
        ("CC", "x86_64-linux-gnu-gcc -pthread", "cc"),
        ("CC", "/tools/llvm/bin/clang", "cc"),
        ("CXX", "clang++ -pthread", "c++"),
        ("LDSHARED", "gcc-12 -shared -L/build/deps/lib", "cc -shared"),
        ("LDSHARED", "/tools/clang/bin/clang -shared -fuse-ld=lld", "cc -shared"),
        ("AR", "/tools/llvm/bin/llvm-ar", "ar"),
        ("AR", "gcc-ar", "ar"),
        ("RANLIB", "llvm-ranlib", "ranlib"),
        ("SHELL", "/bin/sh -e", "/bin/sh -e"),
    ],
)
def test_compilers_get_their_plain_names(cleaner: Any, name: str, value: str, cleaned: str) -> None:
    assert cleaner.variable(name, value) == cleaned


def test_a_prefix_that_every_machine_has_is_not_taken_for_a_trace() -> None:
    cleaner = script("build_traces").Cleaner("/usr", NEW)
    assert cleaner.value("/usr/bin/install -c") == "/usr/bin/install -c"


def test_no_word_is_changed_where_nothing_is_foreign(cleaner: Any) -> None:
    value = "-Wl,-z,relro  '-DNAME=\"a b\"'   -O2"
    assert cleaner.value(value) == value
    assert shlex.split(cleaner.value(value))


def test_names_that_differ_only_by_case_are_reduced_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(templates_dir() / "scripts"))
    finish = script("finish_python")
    library = tmp_path / "lib/python3.12"
    for name in (
        "share/terminfo/N/NCR",
        "share/terminfo/n/ncr",
        "share/terminfo/n/nsterm",
        "share/man/man1/python.1",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in (
        "test/regrtest.py",
        "json/__init__.py",
        "json/tests/test_x.py",
        "__pycache__/os.pyc",
        "os.py",
    ):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(name)
    finish.remove_unneeded(tmp_path, library)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {
        "share/terminfo/n/ncr",
        "share/terminfo/n/nsterm",
        "lib/python3.12/os.py",
        "lib/python3.12/json/__init__.py",
    }


@pytest.mark.parametrize(
    ("content", "first_lines"),
    [
        (b"#!/install/bin/python3.12\nimport pydoc\n", b"#!/R/python3.12\nimport pydoc\n"),
        (
            (
                b'#!/bin/sh\n\'\'\'exec\' "$(dirname -- "$(realpath -- "$0")")/python3.12" '
                b"\"$0\" \"$@\"\n' '''\nimport x\n"
            ),
            b"#!/R/python3.12\nimport x\n",
        ),
        (b"#!/bin/sh\necho python\n", b"#!/bin/sh\necho python\n"),
        (b"\x7fELF", b"\x7fELF"),
    ],
)
def test_scripts_of_python_name_the_capsules_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, first_lines: bytes
) -> None:
    monkeypatch.syspath_prepend(str(templates_dir() / "scripts"))
    finish = script("finish_python")
    path = tmp_path / "script"
    path.write_bytes(content)
    finish._name_program(path, Path("/R/python3.12"))
    assert path.read_bytes() == first_lines


@pytest.fixture
def certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module, as it would be in a capsule whose root is `tmp_path`, in an image without certificates."""
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "runtime/python"))
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "share").mkdir()
    (tmp_path / "share/ca-certificates.crt").write_text("")
    module = script("capsule_certificates")
    monkeypatch.setattr(module, "PLACES", (str(tmp_path / "etc.pem"),))
    return module


def defaults(tmp_path: Path, *, cafile: str | None = None) -> Any:
    """What `ssl.get_default_verify_paths()` says where nothing lies in OpenSSL's places."""
    places: Any = (
        cafile,
        None,
        "SSL_CERT_FILE",
        str(tmp_path / "cert.pem"),
        "SSL_CERT_DIR",
        str(tmp_path / "certs"),
    )
    return ssl.DefaultVerifyPaths(*places)


def test_the_capsules_own_certificates_are_the_last_resort(certificates: Any, tmp_path: Path) -> None:
    assert certificates.other_file(defaults(tmp_path)) == str(tmp_path / "share/ca-certificates.crt")
    (tmp_path / "etc.pem").write_text("")
    assert certificates.other_file(defaults(tmp_path)) == str(tmp_path / "etc.pem")


def test_what_openssl_finds_itself_is_left_alone(certificates: Any, tmp_path: Path) -> None:
    assert certificates.other_file(defaults(tmp_path, cafile="/etc/ssl/cert.pem")) is None
    (tmp_path / "certs").mkdir()
    assert certificates.other_file(defaults(tmp_path)) is not None, "an empty folder has no certificates"
    (tmp_path / "certs/12345678.0").write_text("")
    assert certificates.other_file(defaults(tmp_path)) is None


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_what_the_user_says_holds_also_when_it_names_nothing(
    certificates: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(os.environ, name, "/nowhere")
    assert certificates.other_file(defaults(tmp_path)) is None


def test_a_capsule_without_certificates_falls_back_to_nothing(certificates: Any, tmp_path: Path) -> None:
    (tmp_path / "share/ca-certificates.crt").unlink()
    assert certificates.other_file(defaults(tmp_path)) is None
