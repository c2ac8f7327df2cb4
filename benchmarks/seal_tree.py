"""Sealing a tree of 50,000 files, against looking at each of them, and against the loop that people write."""

from __future__ import annotations

import shlex
import time
from itertools import cycle, islice
from typing import TYPE_CHECKING

from capsule_build.runtime.process import run

from .figures import Figure, alternate
from .sealing import installed_capsule, peak_mb

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import Bench

_FILES = 50_000
_NPM = ("typescript", "eslint", "webpack", "jest", "prettier", "esbuild")
_PIP = ("numpy", "rich", "pydantic")
_SAMPLE = 1_000
"""How many files the loop is tried on: on all of them it takes minutes. Its time is scaled up."""

_LOOP = """
find "$0" -type f | head -n "$1" | while read -r file; do
    case $(file -b "$file") in
        *ELF*interpreter*) patchelf --print-interpreter "$file" ;;
        *ELF*shared*) patchelf --print-rpath "$file" ;;
        *script*) head -n 1 "$file" ;;
    esac
done >/dev/null 2>&1
"""


def measure(bench: Bench) -> list[Figure]:
    """Seal a tree of npm's and pip's files, and copies of them; dry, so that each round finds the same."""
    tree = bench.folder / "tree"
    _make(bench, tree)
    tool = str(installed_capsule(bench) / "bin/seal-tree")
    where = shlex.quote(str(tree))
    find = f"find {where} -type f"
    looking = f"{find} -exec true {{}} + && {find} -print0 | xargs -0 head -q -c 512 >/dev/null"
    dry = [tool, "--any-root", "--dry-run", str(tree)]
    times = alternate(bench.runs, lambda: run(dry, check=False), lambda: run(["sh", "-c", looking]))
    began = time.perf_counter()
    run(["sh", "-c", _LOOP, str(tree), str(_SAMPLE)])
    loop = (time.perf_counter() - began) * _FILES / _SAMPLE
    return [
        Figure(
            "seal-tree, 50,000 files", times[0], "find -exec true, head -c 512", times[1], "s", at_most=1.5
        ),
        Figure("seal-tree, 50,000 files", times[0], "find | file | patchelf", loop, "s", at_most=1 / 20),
        Figure("peak memory, seal-tree, tree", peak_mb(*dry), "limit", 32 * 1.048576, "MB", at_most=1.0),
    ]


def _make(bench: Bench, tree: Path) -> None:
    capsule = installed_capsule(bench)
    (tree / "npm").mkdir(parents=True)
    options = ("--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={tree}/npm")
    run([str(capsule / "bin/capsule-exec"), "npm", "install", *options, *_NPM], timeout=600)
    run(["python3", "-m", "pip", "install", "--quiet", "--target", str(tree / "pip"), *_PIP], timeout=600)
    there = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    small = [path for path in there if path.stat().st_size < 20_000]
    for index, source in enumerate(islice(cycle(small), _FILES - len(there))):
        folder = tree / f"copies/{index % 500}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index}{source.suffix}").write_bytes(source.read_bytes())
