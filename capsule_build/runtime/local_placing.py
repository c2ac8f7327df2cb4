"""Putting a tree in its place on file systems that this process sees (see `placing` and `layout`)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .archive import remove_tree, unpack
from .errors import TargetError
from .layout import CAPSULES, MANIFEST, staging, trash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .environment import OnThisMachine
    from .layout import Mark
    from .reader import Content
    from .tarheaders import Member

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class LocalPlacer:
    """Works on the files themselves."""

    def __init__(self, environment: OnThisMachine, user: int) -> None:
        self._environment = environment
        self._user = user

    def prepare(self, token: str, left_behind: Sequence[str]) -> None:
        """Make the folder, remove what was left (see `Placer.prepare`)."""
        folder = self._path(CAPSULES)
        try:
            with contextlib.suppress(FileExistsError):
                folder.parent.mkdir(mode=0o1777)
                folder.parent.chmod(0o1777)
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o755)
                folder.chmod(0o755)
            found = folder.lstat()
        except OSError as error:
            raise TargetError(f"'{folder}' can't be made: {error.strerror}.") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (self._user, 0) or found.st_mode & 0o022:
            raise TargetError(f"'{folder}' is a symlink, another user's, or writable by others.")
        self.remove(token, [f"{CAPSULES}/{entry}" for entry in left_behind])

    def stage(self, token: str, name: str, members: Iterator[tuple[Member, Content]]) -> None:
        """Unpack (see `Placer.stage`)."""
        del name
        try:
            unpack(members, self._path(staging(token)), read_only=True)
        except OSError as error:
            raise TargetError(
                f"The bundle can't be unpacked into '{self._path(CAPSULES)}': {error.strerror}."
            ) from error

    def commit(self, mark: Mark, old: Mark | None) -> bool:
        """Rename the tree (see `Placer.commit`)."""
        tree = self._path(staging(mark.token))
        root = self._path(f"{CAPSULES}/{mark.name}")
        label = self._path(f"{CAPSULES}/{mark}")
        try:
            _sync(tree)
            os.link(tree / MANIFEST, label, follow_symlinks=False)
            if old is None:
                tree.rename(root)
            else:
                self._swap(tree, root, mark.token)
                self._path(f"{CAPSULES}/{old}").unlink(missing_ok=True)
            _sync(root)
        except OSError as error:
            label.unlink(missing_ok=True)
            remove_tree(tree)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise TargetError(f"The finished tree can't be put at '{root}': {error.strerror}.") from error
        except BaseException:
            remove_tree(tree)
            raise
        return True

    def remove(self, token: str, paths: Sequence[str]) -> None:
        """Rename away, then remove (see `Placer.remove`)."""
        for path in map(self._path, paths):
            try:
                away = self._away(path, token)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise TargetError(f"'{path}' can't be removed: {error.strerror}.") from error
            if away.is_dir() and not away.is_symlink():
                remove_tree(away)
            else:
                away.unlink()

    def tidy(self, folders: Sequence[str]) -> None:
        """Remove empty folders (see `Placer.tidy`)."""
        for folder in map(self._path, folders):
            # Never more than an empty folder, whatever others do meanwhile: that is what rmdir(2) removes.
            with contextlib.suppress(OSError):
                folder.rmdir()

    def finish(self, root: str) -> None:
        """Take the write bits (see `Placer.finish`)."""
        self._path(root).chmod(0o555)

    def _path(self, path: str) -> Path:
        return Path(self._environment.local_path(path))

    def _away(self, path: Path, token: str) -> Path:
        """Rename a path to a token's trash folder; return where that is."""
        away = self._path(trash(token))
        if path.is_dir() and not path.is_symlink() and path.parent != away.parent:
            # Moving a folder to another one changes its "..": that needs the right to write to it.
            path.chmod(0o700)
        try:
            return path.rename(away)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # The two folders are on two file systems: it is renamed on its own.
            return path.rename(path.with_name(away.name))

    def _swap(self, tree: Path, root: Path, token: str) -> None:
        """Put a tree in another one's place, in one step where the file system can, and remove the other."""
        if _exchange(tree, root):
            remove_tree(tree)
            return
        away = self._path(trash(token))
        root.rename(away)
        tree.rename(root)
        remove_tree(away)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names (renameat2(2)). False: this system or file system can't."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    names = os.fsencode(one), os.fsencode(other)
    if library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code))


def _sync(path: Path) -> None:
    """Have all of a path's file system written to the disk: one call, where each file would need its own."""
    library = ctypes.CDLL(None, use_errno=True)
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not hasattr(library, "syncfs") or library.syncfs(handle) != 0:
            os.sync()
    finally:
        os.close(handle)
