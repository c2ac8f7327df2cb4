"""The cache of inputs: each file under its digest, as `sha256/<digest>`.

A file gets its name only when its bytes have been found to be what the name says, and is hashed again before
each use. Downloads lie in staging folders on the same file system; the lock of a staging folder dies with its
process, and then the folder is anybody's to remove.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..runtime.files import sha256_file
from .transfer import WrongFileError, storage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, order=True)
class Entry:
    """A file in the cache: its digest, and its size in bytes."""

    sha256: str
    size: int
    path: Path


def default_root() -> Path:
    """Return the cache's folder: $CAPSULE_CACHE_DIR, else capsule-build in $XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("CAPSULE_CACHE_DIR"):
        return Path(own).absolute()
    if (base := os.environ.get("XDG_CACHE_HOME")) and Path(base).is_absolute():
        return Path(base) / "capsule-build"
    return Path.home() / ".cache" / "capsule-build"


class Cache:
    """Inputs by digest. Several processes may use one folder at once."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root.absolute()

    def path(self, sha256: str) -> Path:
        """Return where the file with this digest is, or would be."""
        if not _DIGEST.fullmatch(sha256):
            raise ValueError(f"not a SHA-256: {sha256!r}")
        return self.root / "sha256" / sha256

    def get(self, sha256: str, size: int | None, *, say: Callable[[str], None] | None = None) -> Path | None:
        """Return the file with this digest, hashed now, or `None` if it isn't here.

        A file that isn't what its name says is removed.

        Args:
            sha256: The digest.
            size: The size in bytes, if it is known.
            say: Told when a file had to be removed.
        """
        path = self.path(sha256)
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if (
                stat.S_ISREG(status.st_mode)
                and size in {None, status.st_size}
                and sha256_file(path) == sha256
            ):
                return path
        except FileNotFoundError:
            return None
        if say is not None:
            say(f"{path} is not what its name says (damaged, or changed); it is removed and fetched again.")
        _remove(path)
        return None

    def adopt(self, file: Path, sha256: str, size: int | None = None) -> Path:
        """Hash a file of a staging folder, and give it its place if it is what it should be.

        Args:
            file: A file on the cache's file system (see `stage`). It is moved.
            sha256: The digest that it must have.
            size: The size in bytes that it must have, if that is known.

        Returns:
            Its place.

        Raises:
            WrongFileError: It has another size or digest; it stays where it is.
            StorageError: It can't be moved.
        """
        here = file.stat().st_size
        if size is not None and here != size:
            raise WrongFileError(f"{file.name} has {here} bytes instead of {size}.")
        if (digest := sha256_file(file)) != sha256:
            raise WrongFileError(f"{file.name} has the SHA-256 {digest} instead of {sha256}.")
        path = self.path(sha256)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Read-only, since builds link to it.
            file.chmod(0o444)
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            file.replace(path)
        except OSError as error:
            raise storage_error(path, error) from error
        return path

    @contextlib.contextmanager
    def stage(self) -> Iterator[Path]:
        """Make an empty folder inside the cache, removed when the block ends, whatever ends it.

        Raises:
            StorageError: It can't be made.
        """
        staging = self.root / "staging"
        try:
            staging.mkdir(parents=True, exist_ok=True)
            self.clean()
            handle, lock = self._lock(staging)
        except OSError as error:
            raise storage_error(staging, error) from error
        folder = lock.with_suffix("")
        try:
            try:
                folder.mkdir()
            except OSError as error:
                raise storage_error(folder, error) from error
            yield folder
        finally:
            _remove(folder)
            lock.unlink(missing_ok=True)
            os.close(handle)

    def abandon(self, folder: Path) -> None:
        """Remove a folder that `stage` made while who works in it can't be made to end."""
        _remove(folder)
        folder.with_suffix(".lock").unlink(missing_ok=True)

    @staticmethod
    def _lock(staging: Path) -> tuple[int, Path]:
        while True:
            handle, name = tempfile.mkstemp(prefix=f"{os.getpid()}-", suffix=".lock", dir=staging)
            fcntl.flock(handle, fcntl.LOCK_EX)
            # Between the two steps another process could take the file for a dead one's and remove it.
            with contextlib.suppress(FileNotFoundError):
                if Path(name).stat().st_ino == os.fstat(handle).st_ino:
                    return handle, Path(name)
            os.close(handle)

    def clean(self) -> None:
        """Remove the staging folders of processes that are no more."""
        for lock in sorted((self.root / "staging").glob("*.lock")):
            try:
                handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pass
            else:
                _remove(lock.with_suffix(""))
                lock.unlink(missing_ok=True)
            finally:
                os.close(handle)

    def entries(self) -> list[Entry]:
        """Return what is in the cache, sorted by digest."""
        found = []
        for path in (self.root / "sha256").glob("*"):
            if _DIGEST.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):
                    found.append(Entry(path.name, path.lstat().st_size, path))
        return sorted(found)

    def prune(self, keep: set[str], *, dry_run: bool = False) -> list[Entry]:
        """Remove all files but those with the digests in `keep`, and what dead processes left.

        Returns:
            What was removed (with `dry_run`: what would be).

        Raises:
            StorageError: Something can't be removed.
        """
        dropped = [entry for entry in self.entries() if entry.sha256 not in keep]
        if not dry_run:
            self.clean()
            for entry in dropped:
                try:
                    _remove(entry.path)
                except OSError as error:
                    raise storage_error(entry.path, error) from error
        return dropped


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # A tree copied out of a container may hold folders that even their owner can't write to.
        for parent, folders, _ in os.walk(path):
            for name in folders:
                if not (folder := Path(parent, name)).is_symlink():
                    with contextlib.suppress(OSError):
                        folder.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
