"""Environments and registry locks for tests of the runtime."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from capsule_build.runtime.archive import check_bundle
from capsule_build.runtime.environment import ShellEnvironment
from capsule_build.runtime.local import LocalEnvironment
from capsule_build.runtime.registry import Capsule, Registry, Variant
from capsule_build.runtime.store import Store
from tests.bundles import Bundle, file, folder, manifest, small_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capsule_build.runtime.process import Result

TAG = "node24-v1"
CAPSULES = "tmp/agentcompass-capsules"
SETUPS = "tmp/agentcompass-capsule-setups"


class Rerooted(LocalEnvironment):
    """This machine with a folder in the place of /tmp, so that a test keeps to its own and needs no rights.

    Args:
        root: The folder that has a `tmp`.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.asked = 0
        """How many programs were run in it."""

    @property
    def name(self) -> str:
        return "rerooted"

    @property
    def identity(self) -> str:
        return f"rerooted:{self.root}"

    def local_path(self, path: str) -> str:
        return str(self.root / path.lstrip("/"))

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Result:
        self.asked += 1
        there = f"{self.root}/tmp"
        moved = [word.replace("/tmp", there) for word in argv]
        result = super().run(moved, stdin=stdin, env=env, cwd=cwd, user=user, timeout=timeout)
        back = there.encode(), b"/tmp"
        return replace(result, stdout=result.stdout.replace(*back), stderr=result.stderr.replace(*back))


class ByShell(ShellEnvironment):
    """The same, reached only by running programs: what a framework brings that has nothing but that."""

    def __init__(self, root: Path) -> None:
        self._inner = Rerooted(root)

    @property
    def name(self) -> str:
        return "by shell"

    @property
    def identity(self) -> str:
        return f"by shell:{self._inner.root}"

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Result:
        return self._inner.run(argv, stdin=stdin, env=env, cwd=cwd, user=user, timeout=timeout)


KINDS = {"local": Rerooted, "shell": ByShell}


def host_libc() -> str:
    """The C library that this machine's own shell is told to have."""
    from capsule_build.runtime.probing import probe

    return probe(LocalEnvironment()).platform.libc


def document(libc: str, version: str = "24.19.0", architecture: str | None = None) -> dict[str, object]:
    """The manifest of a small bundle for this machine's architecture."""
    architecture = architecture or os.uname().machine
    platform = f"linux-{architecture}-{libc}"
    return manifest(
        runtime={"id": "node24", "version": version},
        platform={"os": "linux", "architecture": architecture, "libc": libc},
        install_root=f"/tmp/agentcompass-capsules/node24-{version}-{platform}",
    )


def small(libc: str, version: str = "24.19.0", text: str = "one") -> Bundle:
    """A bundle of 1 KB for this machine; `text` makes it another one."""
    made = small_bundle(architecture=os.uname().machine, document=document(libc, version))
    return made.add(file("share/text", text.encode()))


def megabyte(libc: str, busybox: Path) -> Bundle:
    """A bundle of about 1 MB that keeps the contract and whose tools run, by a static busybox in it."""
    what = document(libc)
    root = what["install_root"]
    made = small_bundle(architecture=os.uname().machine, document=what)
    for name in ("node", "npm", "npx", "seal-tree"):
        script = f"#!{root}/libexec/busybox sh\necho {name} $(cat {root}/share/text)\n"
        made.replace(f"bin/{name}", file(f"bin/{name}", script.encode(), executable=True))
    made.add(folder("libexec"), file("libexec/busybox", busybox.read_bytes(), executable=True))
    scripts = (file(f"lib/{number}.js", b"//" + bytes([number]) * 999) for number in range(60))
    made.add(folder("lib"), *scripts)
    return made.add(file("share/text", b"works"))


def registry_of(*bundles: Path, tag: str = TAG, urls: tuple[str, ...] = ()) -> Registry:
    """A registry lock that names bundles; file names are theirs."""
    variants = {}
    for path in bundles:
        info = check_bundle(path)
        what = info.manifest
        variants[what.platform] = Variant(path.name, info.sha256, info.size, what.install_root, urls)
    capsule = Capsule(what.runtime_id, what.runtime_version, tuple(what.tools), variants)
    return Registry({tag: capsule})


def stored(folder: Path, data: bytes, name: str = "node24.tar.gz") -> tuple[Store, Path]:
    """A store that holds a bundle, and the bundle's path."""
    store = Store(folder)
    store.folder.mkdir(parents=True, exist_ok=True)
    path = store.folder / name
    path.write_bytes(data)
    return store, path


def listing(root: Path) -> list[str]:
    """All that is in the folder of install roots."""
    there = root / CAPSULES
    return sorted(item.name for item in there.iterdir()) if there.exists() else []


def make_tmp(root: Path) -> Path:
    """Make `tmp` in a folder, as it is on a machine."""
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    return root


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory, where there is one: installing waits for the disk, which other tests keep busy."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="capsule-tests-", dir=where))
    try:
        yield folder
    finally:
        remove_read_only(folder)


def remove_read_only(root: Path) -> None:
    """Remove a folder whose parts have no write bits."""
    for folder_name, _, _ in os.walk(root):
        Path(folder_name).chmod(0o700)
    shutil.rmtree(root)


def dump(registry: Registry) -> dict[str, object]:
    """A registry lock as JSON values, to be changed."""
    read: dict[str, object] = json.loads(registry.to_bytes())
    return read
