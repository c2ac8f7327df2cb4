"""A session's files, which come in and go out by their names."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ...runtime.errors import UsageError
from .folders import MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, TooLargeError, TwinFolders, listing

if TYPE_CHECKING:
    import os


class SessionFiles:
    """The files of one session.

    Args:
        top: A folder that belongs to it alone.
    """

    def __init__(self, top: Path) -> None:
        self._folders = TwinFolders(top)

    def put(self, source: str | os.PathLike[str], name: str | None) -> None:
        """Copy a file of this machine into the folder (see `Session.import_file`)."""
        target = self._target(name or Path(source).name, Path(source).stat().st_size)
        shutil.copyfile(source, target)

    def put_bytes(self, content: bytes, name: str) -> None:
        """Make a file of the folder (see `Session.write_file`)."""
        self._target(name, len(content)).write_bytes(content)

    def get(self, name: str, target: str | os.PathLike[str]) -> None:
        """Copy a file of the folder to this machine (see `Session.export_file`)."""
        shutil.copyfile(self._file(name), target, follow_symlinks=False)

    def get_bytes(self, name: str, limit: int) -> bytes:
        """Return what a file has (see `Session.read_file`)."""
        path = self._file(name)
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
        if len(content) > limit:
            raise UsageError(f"The file {name!r} has more than {limit} bytes.")
        return content

    def names(self) -> dict[str, int]:
        """Return all files' names and sizes (see `Session.list_files`)."""
        found = listing(self._folders.kept)
        return {name: entry.size for name, entry in sorted(found.items()) if entry.kind == stat.S_IFREG}

    def delete(self, name: str) -> None:
        """Delete a file of the folder (see `Session.delete_file`)."""
        self._file(name).unlink()

    def clear(self) -> None:
        """Delete all files."""
        self._folders.clear()

    def remove(self) -> None:
        """Delete all files, and the folders that they were in."""
        self._folders.remove()

    def begin(self) -> Path:
        """Return the folder that a run works in."""
        return self._folders.begin()

    def keep(self) -> None:
        """Keep what the run made of it.

        Raises:
            TooLargeError: That is more than a session may have.
        """
        self._folders.keep()

    def give_up(self) -> None:
        """Forget the folder of a run that may not have ended."""
        self._folders.give_up()

    def _target(self, name: str, size: int) -> Path:
        path = self._inside(name)
        if path.is_dir():
            raise UsageError(f"{name!r} is a folder of the session.")
        found = listing(self._folders.kept)
        parts = len(path.relative_to(self._folders.kept).parts)
        if parts > MAX_DEPTH or len(found) + parts > MAX_ENTRIES:
            raise TooLargeError(f"The session's folder can't have the file {name!r}, too.")
        if sum(entry.size for entry in found.values()) + size > MAX_BYTES:
            raise TooLargeError(f"The session's files would have more than {MAX_BYTES >> 20} MB.")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _inside(self, name: str) -> Path:
        top = self._folders.kept
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in name:
            raise UsageError(f"{name!r} is no name of a file in the session's folder.")
        path = top.joinpath(*parts)
        # A run may have made a link that leads elsewhere.
        if not path.parent.resolve().is_relative_to(top.resolve()) or path.is_symlink():
            raise UsageError(f"{name!r} leads out of the session's folder by a symlink.")
        return path

    def _file(self, name: str) -> Path:
        path = self._inside(name)
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = 0
        if not stat.S_ISREG(mode):
            raise UsageError(f"There is no file {name!r} in the session's folder.")
        return path
