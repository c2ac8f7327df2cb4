"""Fixtures: a capsule, setup roots to seal, and images to run in, by chroot instead of an engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime.process import Result, run
from tests import images

from .capsules import SANITIZERS, Capsule, build_tools_on_host, make_capsule
from .programs import Compiler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@pytest.fixture(scope="session")
def capsule(tmp_path_factory: pytest.TempPathFactory) -> Capsule:
    base = tmp_path_factory.mktemp("capsule")
    return make_capsule(base / "root", base / "work")


@pytest.fixture(scope="session")
def sanitized(capsule: Capsule) -> Path:
    """Return where the capsule's tools are, built with the address and undefined-behaviour sanitizers."""
    out = capsule.work / "sanitized"
    build_tools_on_host(capsule.root, out, compiler="clang", flags=SANITIZERS)
    return out


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler(tmp_path_factory.mktemp("programs"))


@dataclass
class Sealed:
    """What a run of seal-tree said."""

    code: int
    report: dict[str, Any]
    stderr: str

    def paths(self, key: str) -> set[str]:
        """Return the paths below the root that a list of the report names."""
        entries = self.report[key]["paths"] if isinstance(self.report[key], dict) else self.report[key]
        prefix = len(self.report["root"]) + 1
        return {(entry if isinstance(entry, str) else entry["path"])[prefix:] for entry in entries}

    def reason(self, path: str) -> str:
        """Return why a path was skipped, or failed."""
        full = f"{self.report['root']}/{path}"
        found = [e["reason"] for k in ("skipped", "failures") for e in self.report[k] if e["path"] == full]
        assert len(found) == 1, (path, self.report)
        return str(found[0])

    @property
    def nothing_changed(self) -> bool:
        return not any(self.report[key]["count"] for key in ("scripts", "interpreters", "rpaths"))


@dataclass
class SetupRoot:
    """A folder to fill and to seal, by the sanitized seal-tree; the recipe's own must agree with it."""

    path: Path
    capsule: Capsule
    sanitized: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/nonexistent"})

    def write(self, name: str, content: str | bytes, mode: int = 0o755) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path

    def copy(self, source: Path, name: str, mode: int = 0o755) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        path.chmod(mode)
        return path

    def seal(self, *options: str, tool: Path | None = None) -> Sealed:
        """Seal with the sanitized tool, then once more with the static one, which must find nothing to do."""
        if tool is not None:
            return self._run(tool, *options)
        before = self._run(self.capsule.seal_tree, "--dry-run", *options)
        sealed = self._run(self.sanitized / "bin/seal-tree", *options)
        again = self._run(self.capsule.seal_tree, *options)
        assert {**before.report, "dry_run": False} == {**sealed.report, "dry_run": False}
        assert again.nothing_changed
        assert again.paths("failures") == sealed.paths("failures")
        assert not list(self.path.rglob(".seal-tree.*"))
        return sealed

    def seal_in(self, image: Image) -> dict[str, Any]:
        """Seal the root in an image, whose loaders are then the ones that are asked; return the report."""
        argv: list[str | Path] = [self.capsule.seal_tree, "--json", "--any-root", self.path]
        result = image.run(self.path, *argv, check=False)
        assert result.code in (0, 1), result.error_text
        report: dict[str, Any] = json.loads(result.stdout)
        return report

    def _run(self, tool: Path, *options: str) -> Sealed:
        argv = [str(tool), "--json", "--any-root", *options, str(self.path)]
        result = run(argv, env=self.environment, check=False, timeout=120)
        assert result.code in (0, 1), result.error_text
        report = json.loads(result.stdout)
        assert (result.code == 0) == (not report["failures"]), report
        return Sealed(result.code, report, result.error_text)


@pytest.fixture
def root(tmp_path: Path, capsule: Capsule, sanitized: Path) -> SetupRoot:
    path = tmp_path / "setup"
    path.mkdir()
    return SetupRoot(path, capsule, sanitized)


_ENTER = """set -eu
image=$1 work=$2 capsule=$3
shift 3
for folder in "$work" "$capsule" /proc /dev; do
    mkdir -p "$image$folder"
    mount --bind "$folder" "$image$folder"
done
exec "$@"
"""


@dataclass(frozen=True)
class Image:
    """A root file system that commands run in, with the capsule and the test's folder at their own paths."""

    kind: str
    tree: Path
    capsule: Capsule

    def run(
        self,
        work: Path,
        *argv: str | Path,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
    ) -> Result:
        """Run a program by its absolute path; PATH leads nowhere unless `env` says else."""
        environment = {"PATH": "/nonexistent"} if env is None else env
        # The environment is set outside: an image may have no program that could.
        enter = ["env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        inner = [*enter, shutil.which("chroot") or "chroot", self.tree, *argv]
        command = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", self.tree, work, self.capsule.root, *inner]
        return run([str(part) for part in command], check=check, timeout=60, stdin=stdin)


Images = Callable[[str], Image]


@pytest.fixture(scope="session")
def image_trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("images")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _tree(kind: str, folder: Path) -> Path:
    tree = folder / kind
    if not tree.exists():
        tree.mkdir()
        run(["tar", "-xf", str(images.root_tar(kind)), "-C", str(tree)])
    return tree


@pytest.fixture(params=["bare", "bookworm", "musl"])
def image(request: pytest.FixtureRequest, image_trees: Path, capsule: Capsule) -> Image:
    """Each of three images: a static shell and nothing else, one with glibc, one with musl."""
    return Image(request.param, _tree(request.param, image_trees), capsule)


@pytest.fixture
def images_by_kind(image_trees: Path, capsule: Capsule) -> Images:
    """Return images by their kind (see tests/images.py)."""

    def get(kind: str) -> Image:
        return Image(kind, _tree(kind, image_trees), capsule)

    return get
