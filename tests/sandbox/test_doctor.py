"""`capsule doctor`: what it says of the sandbox, also where only one language's tasks can run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.sandbox.javascript.guest import guest_key as javascript_key
from capsule_build.sandbox.machine import guest_key as python_key
from capsule_build.sandbox.store import Store

if TYPE_CHECKING:
    from .tasks import Bench

SANDBOX = ("wasmtime", "python", "javascript", "made")
PYTHON = [("wasmtime", "ok"), ("python guest", "ok"), ("python task", "ok")]


def looked_at(bench: Bench, **env: str) -> list[dict[str, str]]:
    """Return what it says of the sandbox. That capsules can't be installed from here is no failure."""
    result = bench.command("doctor", "--json", env=env)
    assert result.code == 0, result.error_text
    checks = json.loads(result.stdout)["checks"]
    return [check for check in checks if check["name"].startswith(SANDBOX)]


def known(checks: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(check["name"], check["status"]) for check in checks]


@pytest.fixture
def cache(bench: Bench) -> Path:
    """A cache that has nothing, yet."""
    folder = bench.folder / "cache"
    (folder / "sandbox").mkdir(parents=True, mode=0o700)
    return folder


def give(cache: Path, key: str) -> None:
    """Put a guest that this machine has into a cache."""
    for suffix in ("cwasm", "image", "json"):
        shutil.copy(Path(Store().root, f"{key}.{suffix}"), cache / "sandbox")


def test_both_languages(bench: Bench) -> None:
    checks = looked_at(bench)
    javascript = ("guest", "bundler", "task")
    assert known(checks) == PYTHON + [(f"javascript {what}", "ok") for what in javascript]
    found = {check["name"]: check["found"] for check in checks}
    for language in ("python", "javascript"):
        assert "Its WebAssembly is the recorded one." in found[f"{language} guest"]
    assert "ms: Python 3." in found["python task"]
    assert "ms: TypeScript." in found["javascript task"]


def test_what_javascript_lacks_is_a_warning(bench: Bench, cache: Path) -> None:
    """Without Node.js no guest can be made; without a registry there is no bundler."""
    looked_at(bench)
    give(cache, python_key())
    tools = bench.folder / "tools"
    tools.mkdir()
    checks = looked_at(bench, CAPSULE_CACHE_DIR=str(cache), PATH=str(tools), CAPSULE_NODE="")
    assert known(checks) == [*PYTHON, ("javascript guest", "warn")]
    assert "Node.js" in checks[-1]["found"]
    assert "CAPSULE_NODE" in checks[-1]["advice"]
    give(cache, javascript_key())
    checks = looked_at(bench, CAPSULE_CACHE_DIR=str(cache), npm_config_registry="http://127.0.0.1:1/")
    assert known(checks) == [*PYTHON, ("javascript guest", "ok"), ("javascript bundler", "warn")]
    assert "esbuild" in checks[-1]["found"]
