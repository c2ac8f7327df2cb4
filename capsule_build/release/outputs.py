"""What lies beside a released bundle: names, and the way in which all of it is written.

The names are the bundle's own with a suffix. A set of files is written wholly or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..record import SUFFIX as RECORD_SUFFIX
from ..resources import default_dist
from ..runtime.errors import UsageError
from ..runtime.regular import open_at_once
from ..runtime.store import SIGNATURE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

BUNDLE_SUFFIX: Final = ".tar.gz"
"""What the names of runtime capsules' bundles end in."""
TASK_SUFFIX: Final = ".wasm"
"""What the names of task bundles end in."""
DIGEST_SUFFIX: Final = ".sha256"
SBOM_SUFFIX: Final = ".cdx.json"
PROVENANCE_SUFFIX: Final = ".provenance.json"
PROVENANCE_SIGNATURE_SUFFIX: Final = ".provenance.sigstore.json"
SBOM_SIGNATURE_SUFFIX: Final = ".sbom.sigstore.json"
PART_SUFFIX: Final = ".part"
"""What unnamed files end in."""


@dataclass(frozen=True)
class Outputs:
    """The files of a release, by the bundle that they are about.

    Attributes:
        bundle: The bundle's path.
    """

    bundle: Path

    @property
    def record(self) -> Path:
        """The build record: it isn't released, but the provenance is made from it."""
        return self._beside(RECORD_SUFFIX)

    @property
    def digest(self) -> Path:
        """The bundle's SHA-256, in the format of `sha256sum`."""
        return self._beside(DIGEST_SUFFIX)

    @property
    def sbom(self) -> Path:
        """The CycloneDX SBOM with the bundle's digest."""
        return self._beside(SBOM_SUFFIX)

    @property
    def provenance(self) -> Path:
        """The in-toto statement with SLSA provenance."""
        return self._beside(PROVENANCE_SUFFIX)

    @property
    def signature(self) -> Path:
        """The Sigstore bundle with the bundle's signature."""
        return self._beside(SIGNATURE_SUFFIX)

    @property
    def provenance_signature(self) -> Path:
        """The Sigstore bundle with the signed provenance statement."""
        return self._beside(PROVENANCE_SIGNATURE_SUFFIX)

    @property
    def sbom_signature(self) -> Path:
        """The Sigstore bundle with the signed SBOM statement."""
        return self._beside(SBOM_SIGNATURE_SUFFIX)

    @property
    def signatures(self) -> tuple[Path, ...]:
        """What signing makes of it."""
        return (self.signature, self.provenance_signature, self.sbom_signature)

    @property
    def released(self) -> tuple[Path, ...]:
        """All that is released of a bundle, the bundle first."""
        return (
            self.bundle,
            self.digest,
            self.sbom,
            self.provenance,
            *self.signatures,
        )

    def _beside(self, suffix: str) -> Path:
        return self.bundle.with_name(self.bundle.name + suffix)


def is_task(bundle: Path) -> bool:
    """Return whether a bundle is one of tasks, by its name: what lies in it must then be that."""
    return bundle.name.endswith(TASK_SUFFIX)


def find_bundles(folder: Path) -> list[Path]:
    """Return the bundles of a folder, of runtime capsules and of tasks, sorted by their names."""
    return sorted(path for suffix in (BUNDLE_SUFFIX, TASK_SUFFIX) for path in folder.glob(f"[!.]*{suffix}"))


def require_bundle(bundle: Path) -> None:
    """Check that a bundle that was named is there.

    Raises:
        UsageError: It isn't; the hint says where one of this name lies, if that is in the folder of outputs.
    """
    if bundle.is_file():
        return
    built = default_dist() / bundle.name
    here = Path.cwd()
    shown = built.relative_to(here) if built.is_relative_to(here) else built
    raise UsageError(
        f"There is no bundle {bundle}.", hint=f"It lies in dist/: {shown}" if built.is_file() else None
    )


def digest_line(sha256: str, filename: str) -> bytes:
    """Return what a `.sha256` file holds: the line that `sha256sum --check` reads."""
    return f"{sha256}  {filename}\n".encode()


def publish(
    files: Mapping[Path, bytes], *, finished: Mapping[Path, Path] | None = None, removed: Iterable[Path] = ()
) -> None:
    """Put a set of files in place, or leave everything as it was.

    Each is written and synced under a temporary name first; then all are renamed, in the order given. Where
    that fails, also by an interrupt, what was renamed is taken back. A kill in the middle can leave a part of
    the set: what comes last should be what makes the rest count.

    Args:
        files: What each file holds.
        finished: For the final names of files that are written already, where they are: they come last.
        removed: What goes with the old set: signatures, say, of what it held. What isn't there is fine.

    Raises:
        OSError: A file can't be written.
    """
    with contextlib.ExitStack() as stack:
        staged: dict[Path, Path] = {}
        for path, data in files.items():
            staged[path] = part = stack.enter_context(unnamed(path))
            with part.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        staged.update(finished or {})
        with _alone({path.parent for path in staged}), _undone_on_error([*staged, *removed]):
            for path in removed:
                path.unlink(missing_ok=True)
            for path, part in staged.items():
                part.replace(path)


@contextlib.contextmanager
def _alone(folders: Iterable[Path]) -> Iterator[None]:
    """Keep other writers of sets out of folders for the time of a block, so that no set is a mix of two."""
    with contextlib.ExitStack() as stack:
        # By what they are, as a folder can have two names; in one order, so that no two wait for each other.
        handles: dict[tuple[int, int], int] = {}
        for folder in folders:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, handle)
            status = os.fstat(handle)
            handles[status.st_dev, status.st_ino] = handle
        for _, handle in sorted(handles.items()):
            # Not every network file system locks folders; there the last one to write may win in parts.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def unnamed(path: Path) -> Iterator[Path]:
    """Make an empty file under a temporary name in a file's folder; behind the block that name is gone.

    It is held as long as this process lives: that is how `remove_stale` knows what a killed one left.

    Raises:
        OSError: The folder isn't there or takes no file.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART_SUFFIX, dir=path.parent)
    try:
        os.fchmod(handle, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(handle)


def remove_stale(folder: Path) -> None:
    """Remove the unnamed files of bundles that killed processes left in a folder."""
    suffixes = (BUNDLE_SUFFIX, TASK_SUFFIX)
    for path in [path for suffix in suffixes for path in folder.glob(f".*{suffix}*{PART_SUFFIX}")]:
        with contextlib.suppress(OSError), open_at_once(path) as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


@contextlib.contextmanager
def _undone_on_error(paths: Iterable[Path]) -> Iterator[None]:
    """Give names back what they named before, if the block ends with an error."""
    with contextlib.ExitStack() as stack:
        before: dict[Path, Path | None] = {}
        for path in paths:
            before[path] = stack.enter_context(_second_name(path)) if path.exists() else None
        try:
            yield
        except BaseException:
            for path, old in before.items():
                if old is None:
                    path.unlink(missing_ok=True)
                else:
                    # Where both name one file, nothing happened to it, and this does nothing (POSIX).
                    old.replace(path)
            raise


@contextlib.contextmanager
def _second_name(path: Path) -> Iterator[Path]:
    """Give a file a second, temporary name for the time of a block, so that it can come back."""
    with open_at_once(path) as stream:
        # As in `unnamed`.
        fcntl.flock(stream, fcntl.LOCK_SH)
        name = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{PART_SUFFIX}")
        try:
            _link(path, name)
            yield name
        finally:
            name.unlink(missing_ok=True)


def _link(path: Path, name: Path) -> None:
    """Give a file another name; where that can't be, give the name to a copy."""
    try:
        os.link(path, name)
    except OSError:
        # The file system has no such links, or the file is another user's (Linux's protected_hardlinks).
        shutil.copy2(path, name)
