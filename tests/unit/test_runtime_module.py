"""The runtime module as a whole: vendored, imported, described."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import capsule_build.runtime as module
from capsule_build.runtime.registry import Registry
from tests.unit.test_registry import lock

FOLDER = Path(module.__file__).parent
SCHEMA = FOLDER / "registry.schema.json"
# It has no types.
jsonschema = importlib.import_module("jsonschema")

USE = """
import json, pathlib, sys
from vendored import LocalEnvironment, Platform, Registry, Store, TargetError, UsageError, check_bundle
from vendored import install, load_registry, probe
registry = load_registry(pathlib.Path(sys.argv[1]))
found = registry.resolve("node24-v1", Platform("x86_64", "musl"))
target = probe(LocalEnvironment())
try:
    install("../x", LocalEnvironment(), registry=registry, store=Store(pathlib.Path("data")))
except UsageError as error:
    refused = str(error)
foreign = sorted(
    name.partition(".")[0] for name in sys.modules
    if name.partition(".")[0] not in {*sys.stdlib_module_names, "vendored", "__main__"}
)
print(json.dumps([found.variant.filename, target.platform.architecture, refused, foreign]))
"""


def python_3_10() -> str | None:
    """Return a Python 3.10, if this machine has one."""
    found = [shutil.which("python3.10"), *map(str, Path.home().glob(".pyenv/versions/3.10.*/bin/python"))]
    for path in found:
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_every_file_keeps_to_the_grammar_of_python_3_10(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 10))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            assert str(node.module).partition(".")[0] in sys.stdlib_module_names
        if isinstance(node, ast.Import):
            for name in node.names:
                assert name.name.partition(".")[0] in sys.stdlib_module_names
        assert not (isinstance(node, ast.ImportFrom) and node.level > 1), "it leaves its own folder"


@pytest.mark.parametrize("version", ["this", "3.10"])
def test_the_folder_alone_can_be_vendored(version: str, tmp_path: Path) -> None:
    python = sys.executable if version == "this" else python_3_10()
    if python is None:
        pytest.skip("there is no Python 3.10 on this machine")
    shutil.copytree(FOLDER, tmp_path / "vendored", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "lock.json").write_text(json.dumps(lock()))
    (tmp_path / "use.py").write_text(USE)
    # Without site-packages, and without what the environment adds to the path.
    command = [python, "-S", "-E", "-W", "error", "use.py", "lock.json"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    name, architecture, refused, foreign = json.loads(result.stdout)
    assert name == "node24-v1-linux-x86_64-musl.tar.gz"
    assert architecture == os.uname().machine
    assert "is a path" in refused
    assert foreign == []


def test_importing_takes_less_than_30_ms_and_no_third_party_module() -> None:
    code = (
        "import sys, time; begun = time.perf_counter(); import capsule_build.runtime; "
        "print(time.perf_counter() - begun, *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    seconds = []
    for _ in range(5):
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=FOLDER.parents[1], capture_output=True, text=True, check=True
        ).stdout.split()
        seconds.append(float(said[0]))
        own = {"capsule_build", "__main__", "sitecustomize", "usercustomize"}
        assert {name for name in said[1:] if name not in sys.stdlib_module_names and name[0] != "_"} <= own
    assert min(seconds) < 0.030


def test_all_that_is_public_is_there_and_named_in_the_readme() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"{name} has no docstring"
        assert re.search(rf"\b{name}\b", readme), f"README.md doesn't name {name}"
    homes = [name for names in module._HOMES.values() for name in names]
    assert sorted(homes) == sorted(module.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = module.nothing


def test_the_readme_is_one_page() -> None:
    assert len((FOLDER / "README.md").read_text().splitlines()) <= 100


# The registry lock's schema


def test_the_schema_is_a_schema_and_takes_what_the_code_takes() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(lock())
    jsonschema.Draft202012Validator(schema).validate(json.loads(Registry({}).to_bytes()))


WRONG = [
    (("schema_version",), "agentcompass.capsule-registry.v2"),
    (("more",), 1),
    (("capsules", "node24-v1", "more"), 1),
    (("capsules", "node24-v1", "runtime", "version"), "x"),
    (("capsules", "node24-v1", "tools"), []),
    (("capsules", "node24-v1", "tools"), ["node", "node", "seal-tree"]),
    (("capsules", "node24-v1", "variants", "linux-riscv-musl"), {}),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "sha256"), "AB" * 32),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "size"), 0),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "size"), "123"),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "filename"), "../x.tar.gz"),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "install_root"), "/opt/x"),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "urls"), ["ftp://x/y"]),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "urls"), ["https://u@x/y"]),
    (("capsules", "node24-v1", "variants", "linux-x86_64-musl", "revoked"), ""),
    (("capsules", "Node24"), {}),
]


@pytest.mark.parametrize(("place", "value"), WRONG, ids=[".".join(place) for place, _ in WRONG])
def test_the_schema_refuses_what_the_code_refuses(place: tuple[str, ...], value: object) -> None:
    document = lock()
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(Exception, match=r"."):
        Registry.from_bytes(json.dumps(document).encode())
    schema = json.loads(SCHEMA.read_text())
    assert not jsonschema.Draft202012Validator(schema).is_valid(document)


def test_the_schema_shipped_is_the_one_that_docs_name() -> None:
    text = (FOLDER.parents[1] / "docs" / "registry.md").read_text()
    assert "capsule_build/runtime/registry.schema.json" in text
