"""Python from each bundle, in images that have no libc, an old one, a new one or the other one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from capsule_build.runtime.process import run
from tests.integration import certificates
from tests.integration.capsules import printed_json, said
from tests.integration.pythons import PROGRAMS, PythonCapsules, PythonPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.pythons import Bind

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

KINDS: Final = ("bare", "bullseye", "bookworm", "trixie", "musl")
DOCKER: Final = {("glibc", "musl"), ("musl", "bullseye"), ("both", "bare")}
UV_KINDS: Final = ("bare", "bullseye", "musl")
FACTS: Final = (
    *("self", "extensions", "threads", "time_zone", "text", "codecs", "names", "tags"),
    *("build_variables", "configuration_script", "bytecode", "libraries"),
)

# What CPython's own documentation calls the standard library, as far as it is compiled.
EXTENSIONS: Final = (
    *("_asyncio", "_bisect", "_blake2", "_bz2", "_codecs_cn", "_codecs_hk", "_codecs_iso2022", "_codecs_jp"),
    *("_codecs_kr", "_codecs_tw", "_contextvars", "_csv", "_ctypes", "_datetime", "_decimal", "_elementtree"),
    *("_hashlib", "_heapq", "_json", "_lsprof", "_lzma", "_md5", "_multibytecodec", "_multiprocessing"),
    *(
        "_opcode",
        "_pickle",
        "_posixshmem",
        "_posixsubprocess",
        "_queue",
        "_random",
        "_sha1",
        "_sha2",
        "_sha3",
    ),
    *("_socket", "_sqlite3", "_ssl", "_statistics", "_struct", "_zoneinfo", "array", "binascii", "cmath"),
    *("fcntl", "grp", "math", "mmap", "pyexpat", "resource", "select", "syslog", "termios", "unicodedata"),
    *("zlib", "_thread", "_signal", "posix", "time", "errno", "faulthandler"),
)
FIRST_TAGS: Final = {
    "glibc": ["manylinux_2_41", "manylinux_2_40", "manylinux_2_39", "manylinux_2_38"],
    "musl": ["musllinux_1_2", "musllinux_1_1", "musllinux_1_0", "linux"],
}

Place = "Callable[[str, str, str], PythonPlace]"


def cells() -> list[Any]:
    """Every image and capsule of one runtime with Podman, a diagonal of all with Docker."""
    everything = [(name, kind) for name in ("glibc", "musl") for kind in KINDS]
    chosen = [("podman", *cell) for cell in everything if cell not in DOCKER]
    chosen += [("docker", *cell) for cell in sorted(DOCKER) if cell[0] != "both"]
    return [pytest.param(*cell, id="-".join(cell)) for cell in chosen]


def venv_cells() -> list[Any]:
    """As `cells`, and the capsule with uv in images without a libc, with an old one and with the other."""
    both = [("docker" if ("both", kind) in DOCKER else "podman", "both", kind) for kind in UV_KINDS]
    return [*cells(), *(pytest.param(*cell, id="-".join(cell)) for cell in both)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, python_capsules: PythonCapsules) -> Path:
    """A folder with the tests' programs, keys of servers, and wheels for either libc."""
    folder = tmp_path_factory.mktemp("programs")
    for path in Path(__file__).with_name("programs").glob("python_*.py"):
        shutil.copyfile(path, folder / path.name)
    certificates.write_authority(folder, "trusted")
    certificates.write_authority(folder, "stranger")
    (folder / "wheels").mkdir()
    for platform in ("manylinux2014", "musllinux_1_2"):
        for version in ("3.12", "3.13"):
            wanted = ("--platform", f"{platform}_x86_64", "--python-version", version)
            fixed = ("--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder / "wheels"))
            run(["python3", "-m", "pip", "download", *fixed, *wanted, "markupsafe==3.0.3"], timeout=120)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def place(
    request: pytest.FixtureRequest, python_capsules: PythonCapsules, programs: Path
) -> Callable[[str, str, str], PythonPlace]:
    """`place(engine, name, kind)`: an image with a capsule in it."""

    def make(engine: str, name: str, kind: str) -> PythonPlace:
        opened = request.getfixturevalue(f"{engine}_engine")
        how = python_capsules.built(name).made
        return PythonPlace(opened, kind, how, python_capsules.tree(name), programs)

    return make


@pytest.mark.parametrize(("engine", "name", "kind"), cells())
def test_python_works_in_an_image_that_it_was_not_made_for(
    place: Callable[[str, str, str], PythonPlace], engine: str, name: str, kind: str
) -> None:
    where = place(engine, name, kind)
    how = where.made
    environment = {"LC_ALL": "en_US.UTF-8"}
    facts = printed_json(where.program("python_facts.py", where.root, *FACTS, env=environment))
    prefix = f"{where.root}/runtime/python"
    assert facts["self"] == {
        "version": how.python,
        "executable": how.program,
        "base_executable": how.program,
        "exe": how.program,
        "prefix": prefix,
        "base_prefix": prefix,
        "environment": {},
    }
    assert facts["extensions"]["failed"] == {}
    assert set(EXTENSIONS) - set(facts["extensions"]["imported"]) == set()
    assert facts["threads"] is True
    assert facts["time_zone"]["offset"] == "2:00:00"
    assert facts["time_zone"]["known"] > 400
    encodings = {
        name: value.lower().replace("-", "") for name, value in facts["text"].items() if name != "chosen"
    }
    assert encodings == {"file_system": "utf8", "output": "utf8", "preferred": "utf8", "round": "ärger"}
    assert facts["codecs"] == []
    assert facts["names"]["localhost"] == ["127.0.0.1"]
    assert [tag.removesuffix("_x86_64") for tag in facts["tags"]] == FIRST_TAGS[how.libc]
    assert facts["build_variables"] == {
        "traces": {},
        "compilers": ["cc", "c++", "ar", "cc"],
        "include": True,
    }
    assert facts["configuration_script"] == {
        "code": 0,
        "words": [*[f"-I{prefix}/include/python{how.series}"] * 2, prefix],
        "error": "",
    }
    assert facts["bytecode"] == []
    strangers = [path for path in facts["libraries"] if not path.startswith(f"{where.root}/")]
    assert [path for path in strangers if ".so" in path] == []


@pytest.mark.parametrize(("engine", "name", "kind"), venv_cells())
def test_venvs_name_the_capsules_own_python_and_take_wheels_of_its_family(
    place: Callable[[str, str, str], PythonPlace], engine: str, name: str, kind: str
) -> None:
    where = place(engine, name, kind)
    how = where.made
    found = printed_json(where.program("python_venvs.py", where.root, f"{PROGRAMS}/wheels"))
    prefix = f"{where.root}/runtime/python"
    folders = {"plain": "plain", "linked": "linked", "copied": "copied", "nested": "nested", "by-uv": "by-uv"}
    if name != "both":
        del folders["by-uv"]
    for key, folder in folders.items():
        said_of_it = found.pop(key)
        assert said_of_it["home"] == f"{prefix}/bin", key
        executable, own, base = said_of_it["says"]
        assert executable.startswith(f"/tmp/{folder}/bin/python"), key
        assert (own, base) == (f"/tmp/{folder}", prefix), key
    assert [tag.removesuffix("_x86_64") for tag in found.pop("tags")] == FIRST_TAGS[how.libc]
    family = {"glibc": "gnu", "musl": "musl"}[how.libc]
    assert found.pop("extension").endswith(f"x86_64-linux-{family}.so")
    if name == "both":
        assert found.pop("uv-extension").startswith("/tmp/setup/lib/python3.12/site-packages/")
        assert found.pop("uv-run")[1:] == ["/tmp/setup", prefix]
    assert found == {}


@pytest.mark.parametrize(("name", "engine"), [("glibc", "podman"), ("musl", "docker")])
def test_tls_takes_the_images_certificates_wherever_they_lie_and_the_capsules_own_last(
    place: Callable[[str, str, str], PythonPlace], name: str, engine: str
) -> None:
    where = place(engine, name, "bare")
    found = printed_json(where.program("python_tls.py", PROGRAMS))
    unknown = "unable to get local issuer certificate"
    own = f"{where.root}/share/ca-certificates.crt"
    assert found["nothing"].pop("known") > 50
    assert found["nothing"] == {"trusted": unknown, "stranger": unknown, "file": own}
    trusting = {"trusted": "hello", "stranger": unknown, "known": 1}
    assert found["pki"] == {**trusting, "file": "/etc/pki/tls/certs/ca-bundle.crt"}
    assert found["named"] == {**trusting, "file": f"{PROGRAMS}/trusted-ca.pem"}
    refusing = {"trusted": unknown, "stranger": unknown, "known": 0, "file": None}
    assert found["missing"] == refusing
    assert found["missing folder"] == refusing


@pytest.mark.parametrize(
    ("name", "kind", "folder"),
    [
        ("glibc", "musl", "/lib"),
        ("glibc", "bookworm", "/usr/lib/x86_64-linux-gnu"),
        ("musl", "bookworm", "/lib"),
    ],
)
def test_names_are_found_where_nsswitch_names_modules_of_the_other_libc(
    place: Callable[[str, str, str], PythonPlace],
    python_capsules: PythonCapsules,
    tmp_path: Path,
    name: str,
    kind: str,
    folder: str,
) -> None:
    where = place("podman", name, kind)
    other = "musl" if name == "glibc" else "glibc"
    module = next(python_capsules.tree(other).glob("runtime/python/lib/python3*/lib-dynload/_bisect.*.so"))
    (tmp_path / "nsswitch.conf").write_text("hosts: strange absent files dns\npasswd: strange files\n")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n127.0.0.9 capsule.test\n")
    binds: tuple[Bind, ...] = (
        (str(tmp_path / "nsswitch.conf"), "/etc/nsswitch.conf", "ro"),
        (str(tmp_path / "hosts"), "/etc/hosts", "ro"),
        (str(tmp_path / "hosts"), "/etc/hosts-of-test", "ro"),
        (str(module), f"{folder}/libnss_strange.so.2", "ro"),
    )
    facts = printed_json(where.program("python_facts.py", where.root, "names", binds=binds))
    assert facts["names"] == {"localhost": ["127.0.0.1"], "hosts": "127.0.0.9", "root": "root"}


SETUP: Final = "/tmp/agentcompass-capsule-setups/of-test"
HARMFUL: Final = {
    "PYTHONHOME": "/nowhere",
    "PYTHONPATH": f"{PROGRAMS}/bad",
    "PYTHONSTARTUP": "/nowhere.py",
    "NODE_OPTIONS": "--require /nowhere.js",
    "NPM_CONFIG_PREFIX": "/nowhere",
    "PIP_TARGET": "/nowhere",
    "CONDA_PREFIX": "/nowhere",
    "VIRTUAL_ENV": "/nowhere",
}


def test_variables_of_the_image_dont_break_the_set_up_and_reach_the_harness_unchanged(
    place: Callable[[str, str, str], PythonPlace], tmp_path: Path
) -> None:
    where = place("podman", "both", "bookworm")
    harness = tmp_path / "harness"
    (harness / "bin").mkdir(parents=True)
    (harness / "package.json").write_text('{"name": "harness", "version": "1.0.0", "bin": "bin/harness"}')
    shown = "\n".join(f'printf "%s=%s\\n" {name} "${name}"' for name in (*HARMFUL, "PATH"))
    (harness / "bin/harness").write_text(f"#!/usr/bin/env bash\n{shown}\n")
    (harness / "bin/harness").chmod(0o755)
    script = f"""
        setup="{{root}}/bin/capsule-exec --setup-root {SETUP} --"
        $setup pip install --no-index --find-links {PROGRAMS}/wheels markupsafe >&2
        $setup uv pip install --offline --no-index --find-links {PROGRAMS}/wheels --reinstall markupsafe >&2
        $setup npm install --global --offline --install-links /harness >&2
        $setup python -c "import markupsafe._speedups as it; print(it.__file__)"
        {{root}}/bin/seal-tree {SETUP} >&2
        PATH=/nonexistent {SETUP}/bin/harness
    """
    outcome = where.shell(script, env=HARMFUL, binds=((str(harness), "/harness", "ro"),))
    assert outcome.code == 0, said(outcome)
    extension, *shown_lines = outcome.stdout.decode().splitlines()
    assert extension.startswith(f"{SETUP}/lib/python3.12/site-packages/markupsafe/")
    assert dict(line.split("=", 1) for line in shown_lines) == {**HARMFUL, "PATH": "/nonexistent"}


@pytest.mark.parametrize(("name", "kind"), [("both", "musl"), ("musl", "bookworm"), ("both", "bare")])
def test_tools_work_where_ld_preload_names_a_library_of_the_other_libc(
    place: Callable[[str, str, str], PythonPlace], python_capsules: PythonCapsules, name: str, kind: str
) -> None:
    where = place("podman", name, kind)
    other = "glibc" if where.made.libc == "musl" else "musl"
    library = next(python_capsules.tree(other).glob("runtime/python/lib/libpython3.*.so.1.0"))
    commands = ["{root}/bin/python --version", "{root}/bin/python3 --version", "{root}/bin/pip --version"]
    tools = ["python", "pip", *(["node", "npm", "uv"] if name == "both" else [])]
    commands += [f"{{root}}/bin/capsule-exec --setup-root /tmp/setup {tool} --version" for tool in tools]
    script = "\n".join(f"LD_PRELOAD=/strange.so {command}" for command in commands)
    outcome = where.shell(script, binds=((str(library), "/strange.so", "ro"),))
    assert outcome.code == 0, said(outcome)
    assert len(outcome.stdout.splitlines()) == len(commands)
    lines = outcome.stderr.decode().splitlines()
    assert lines, "nothing was said of it"
    for line in lines:
        assert f"LD_PRELOAD names /strange.so, which is made for {other}" in line


@pytest.mark.parametrize("name", ["glibc", "musl"])
def test_an_extension_is_compiled_against_the_capsules_headers(
    place: Callable[[str, str, str], PythonPlace], tmp_path: Path, name: str
) -> None:
    where = place("podman", name, "bare")
    compiler = {"glibc": "cc", "musl": "musl-gcc"}[name]
    (tmp_path / "small.c").write_text(
        "#include <Python.h>\n"
        "static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }\n"
        'static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};\n'
        'static PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", "", -1, methods};\n'
        "PyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&module); }\n"
    )
    (tmp_path / "build.py").write_text(
        "import os, shlex, subprocess, sys, sysconfig\n"
        "get = sysconfig.get_config_var\n"
        f"link = [{compiler!r}, *shlex.split(get('LDSHARED'))[1:]]\n"
        "flags = shlex.split(get('CFLAGS')) + shlex.split(get('CCSHARED'))\n"
        "flags += ['-I' + sysconfig.get_path('include')]\n"
        "target = '/tmp/small' + get('EXT_SUFFIX')\n"
        "subprocess.run([*link, *flags, '/source/small.c', '-o', target], check=True)\n"
        "sys.path.insert(0, '/tmp')\n"
        "import small\n"
        "print(small.answer())\n"
    )
    host = tuple((path, path, "ro") for path in ("/usr", "/lib", "/lib64", "/etc/alternatives"))
    binds: tuple[Any, ...] = ((str(tmp_path), "/source", "ro"), *host)
    environment = {"PATH": "/usr/bin"}
    outcome = where.run("{root}/bin/python", "/source/build.py", binds=binds, env=environment)
    assert outcome.code == 0, said(outcome)
    assert outcome.stdout == b"42\n"


@pytest.mark.parametrize("name", ["both", "musl"])
def test_nothing_is_written_into_the_install_root(
    request: pytest.FixtureRequest,
    place: Callable[[str, str, str], PythonPlace],
    python_capsules: PythonCapsules,
    tmp_path: Path,
    name: str,
) -> None:
    tree = python_capsules.tree(name)
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy, symlinks=True)
    before = _listed(copy)
    where = place("podman", name, "bookworm")
    where._binds = ((str(copy), where.root, "rw"), *where._binds[1:])
    outcome = where.program("python_venvs.py", where.root, f"{PROGRAMS}/wheels")
    assert outcome.code == 0, said(outcome)
    outcome = where.program("python_facts.py", where.root, "extensions", "time_zone", "tags")
    assert outcome.code == 0, said(outcome)
    assert _listed(copy) == before


def _listed(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def test_pip_refuses_to_change_the_capsule_and_says_what_to_do(
    place: Callable[[str, str, str], PythonPlace],
) -> None:
    where = place("podman", "glibc", "bare")
    outcome = where.run(
        "{root}/bin/pip", "install", "--no-index", "--find-links", f"{PROGRAMS}/wheels", "markupsafe"
    )
    assert outcome.code == 1
    assert b"externally-managed-environment" in outcome.stderr
    assert b"capsule-exec --setup-root" in outcome.stderr
