"""Root file systems for tests, as tar files that are made once and kept in the tests' own folder.

No image can be pulled where these tests run, so each is made from the packages of the Debian mirror that the
host's apt knows; apt checks the signatures.

    bare      one static busybox as /bin/busybox and /bin/sh: no libc, no /etc, nothing else
    nopath    the same, without PATH in the image's configuration
    musl      the same, with Debian's musl as the system's libc, where musl systems have it
    bullseye, bookworm, trixie      a minimal Debian with its own glibc, bash, coreutils and libstdc++
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from capsule_build.engine.docker import DockerEngine
from capsule_build.engine.podman import PodmanEngine
from capsule_build.runtime.files import atomic_writer
from capsule_build.runtime.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule_build.engine import Engine

KINDS: Final = ("bare", "nopath", "musl", "bullseye", "bookworm", "trixie")
SUITES: Final = ("bullseye", "bookworm", "trixie")
TAG: Final = "capsule-test"

_VERSION: Final = "1"
"""To be raised when what is in a root file system changes: kept ones are then made again."""

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_STATIC_SUITE: Final = "trixie"
_DEBIAN: Final = (
    *("base-files", "base-passwd", "bash", "coreutils", "dash", "debianutils", "findutils", "grep", "sed"),
    *("hostname", "libc-bin", "libc6", "libgcc-s1", "libstdc++6", "tar", "gzip"),
)
_FOLDERS: Final = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "var")
_MERGED: Final = ("bin", "sbin", "lib", "lib64")
_UNUSED: Final = ("doc", "info", "locale", "man", "bug", "lintian")
_MTIME: Final = 315532800
_APT_SECONDS: Final = 300


def state_folder() -> Path:
    """Return where tests keep engine data and images between runs; never in the checkout."""
    given = os.environ.get("CAPSULE_TEST_STATE")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given) if given else cache / "capsule-build-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Give a folder for the time of a block; what killed runs left of theirs is removed, too."""
    beside = state_folder() / "scratch"
    beside.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        # A folder is in use while somebody holds its lock, which the kernel takes from a process that dies.
        with _lock(state_folder() / "scratch.lock"):
            for left in beside.iterdir():
                with contextlib.suppress(BlockingIOError, FileNotFoundError), _held(left):
                    shutil.rmtree(left)
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=beside))
            stack.enter_context(_held(folder))
            stack.callback(shutil.rmtree, folder)
        yield folder


def root_tar(kind: str) -> Path:
    """Return a root file system as a tar, made if there is none yet."""
    folder = state_folder() / "roots"
    folder.mkdir(exist_ok=True)
    path = folder / f"{kind}-{_VERSION}.tar"
    with _lock(folder / f"{kind}.lock"):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as work:
                pack_tree(_tree(kind, Path(work)), path)
    return path


def pack_tree(tree: Path, path: Path) -> None:
    """Write a folder as a tar, with root as the owner, one time, and the modes that it has."""

    def as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = _MTIME
        return member

    with atomic_writer(path) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for item in sorted(tree.iterdir()):
            archive.add(item, arcname=item.name, filter=as_root)


def image_from_tar(engine: Engine, tar: Path, name: str, *, path: str | None = _PATH) -> str:
    """Import a tar as an image of one layer and return the image's name.

    It doesn't carry the project's label, so that a test that prunes what is labelled leaves it alone.

    Args:
        engine: Where to.
        tar: The root file system.
        name: The last part of the image's name.
        path: PATH in the image's configuration; None: it has none.
    """
    repository = f"{TAG}/{name}"
    changes = [f"ENV PATH={path}"] if path else []
    if isinstance(engine, DockerEngine):
        engine._client.import_image(str(tar), repository=repository, tag="latest", changes=changes)
    elif isinstance(engine, PodmanEngine):
        params = {"reference": f"{repository}:latest", "changes": changes}
        with tar.open("rb") as stream:
            engine._api._client.api.post("/images/import", params=params, data=stream).raise_for_status()
    else:
        raise TypeError(engine)
    return f"{repository}:latest"


def image_from_tree(engine: Engine, tree: Path, name: str, *, path: str | None = _PATH) -> str:
    """Import a folder, owned by root and with the modes that it has, as `image_from_tar` does."""
    with tempfile.TemporaryDirectory(dir=state_folder()) as work:
        tar = Path(work) / "root.tar"
        pack_tree(tree, tar)
        return image_from_tar(engine, tar, name, path=path)


def image(engine: Engine, kind: str) -> str:
    """Return the name of an image of one of the `KINDS` (see the module), made where it isn't there."""
    name = f"{kind}-{_VERSION}"
    if not engine.has_image(f"{TAG}/{name}:latest"):
        image_from_tar(engine, root_tar(kind), name, path=None if kind == "nopath" else _PATH)
    return f"{TAG}/{name}:latest"


def _tree(kind: str, work: Path) -> Path:
    tree = work / "tree"
    tree.mkdir()
    if kind in SUITES:
        _debian(tree, _packages(work, kind, _DEBIAN))
        return tree
    if kind not in KINDS:
        raise AssertionError(f"'{kind}' is none of {KINDS}")
    wanted = ("busybox-static", "musl") if kind == "musl" else ("busybox-static",)
    unpacked = work / "unpacked"
    unpacked.mkdir()
    for package in _packages(work, _STATIC_SUITE, wanted):
        _unpack(package, unpacked)
    (tree / "bin").mkdir()
    shutil.copy2(next(unpacked.glob("**/bin/busybox")), tree / "bin/busybox")
    (tree / "bin/sh").symlink_to("busybox")
    if kind == "musl":
        loader = next(path for path in unpacked.glob("**/libc.so") if not path.is_symlink())
        architecture = loader.parent.name.partition("-")[0]
        (tree / "lib").mkdir()
        shutil.copy2(loader, tree / f"lib/ld-musl-{architecture}.so.1")
        (tree / "lib" / f"ld-musl-{architecture}.so.1").chmod(0o755)
        (tree / "lib" / f"libc.musl-{architecture}.so.1").symlink_to(f"ld-musl-{architecture}.so.1")
        _folders(tree)
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (tree / "etc/group").write_text("root:x:0:\n")
    return tree


def _debian(tree: Path, packages: list[Path]) -> None:
    for name in _MERGED:
        (tree / "usr" / name).mkdir(parents=True)
        (tree / name).symlink_to(f"usr/{name}")
    for package in packages:
        _unpack(package, tree)
    for name in _UNUSED:
        shutil.rmtree(tree / "usr/share" / name, ignore_errors=True)
    _folders(tree)
    # What the packages' own scripts would do.
    for name in ("passwd", "group"):
        shutil.copy2(tree / f"usr/share/base-passwd/{name}.master", tree / "etc" / name)
    shell = tree / "usr/bin/sh"
    if not shell.exists():
        shell.symlink_to("dash")


def _folders(tree: Path) -> None:
    for name in _FOLDERS:
        (tree / name).mkdir(exist_ok=True)
    (tree / "tmp").chmod(0o1777)


def _packages(work: Path, suite: str, wanted: tuple[str, ...]) -> list[Path]:
    """Fetch packages of a suite, and what they depend on, by an apt that knows nothing but that suite."""
    apt = work / "apt"
    for name in ("lists/partial", "archives/partial", "etc"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    mirror = _mirror()
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (apt / "sources.list").write_text(f"deb [signed-by={keyring}] {mirror} {suite} main\n")
    options = {
        "Dir::State": apt,
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": apt / "etc",
        "Dir::Etc::preferencesparts": apt / "etc",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Check-Valid-Until": "false",
        "Debug::NoLocking": "true",
    }
    command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    run([*command, "update", "-oAPT::Update::Error-Mode=any"], timeout=_APT_SECONDS)
    run([*command, "install", "--download-only", "--yes", *wanted], timeout=_APT_SECONDS)
    found = sorted((apt / "archives").glob("*.deb"))
    if wanted[0] == "busybox-static":
        found = [path for path in found if path.name.partition("_")[0] in wanted]
    return found


def _mirror() -> str:
    """Return the Debian mirror that the host's apt uses: the one that has a main archive, not security's."""
    fields = "$(REPO_URI) $(ORIGIN) $(LABEL) $(COMPONENT)"
    listed = run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]).text
    for line in listed.splitlines():
        if line.endswith(" Debian Debian main"):
            return line.partition(" ")[0]
    raise AssertionError("apt knows no Debian mirror here")


def _unpack(package: Path, tree: Path) -> None:
    files = run(["dpkg-deb", "--fsys-tarfile", str(package)]).stdout
    run(["tar", "--extract", "--keep-directory-symlink", "--directory", str(tree)], stdin=files)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; `BlockingIOError`: somebody else does."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
