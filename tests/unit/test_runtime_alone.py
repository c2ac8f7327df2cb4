"""`capsule_build/runtime/` can be lifted out: Python 3.10's grammar, the standard library, and itself."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

import pytest

import capsule_build.runtime
from capsule_build.runtime.process import run
from tests.bundles import small_bundle

FOLDER = Path(capsule_build.runtime.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_is_python_3_10_and_imports_only_the_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, f"line {node.lineno} imports from outside the package"
            continue
        else:
            continue
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names, f"line {node.lineno} imports {name}"


def test_the_folder_alone_checks_a_bundle(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "vendored", ignore=shutil.ignore_patterns("__pycache__"))
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(small_bundle().data())
    program = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from vendored import archive, elf, registry\n"
        "print(archive.check_bundle(pathlib.Path(sys.argv[2])).manifest.runtime_id)\n"
        "assert 'capsule_build' not in sys.modules\n"
    )
    result = run([sys.executable, "-I", "-S", "-W", "error", "-c", program, str(tmp_path), str(bundle)])
    assert result.text == "node24\n"
