"""A session's folder: files come in and go out by their names, and a run works on a copy."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ...runtime.errors import UsageError

if TYPE_CHECKING:
    import os


class SessionFiles:
    """The files of one session.

    Args:
        top: A folder that belongs to it alone.
    """

    def __init__(self, top: Path) -> None:
        self._files = top / "files"
        self._copy = top / "run"
        self._files.mkdir()

    def put(self, source: str | os.PathLike[str], name: str | None) -> None:
        """Copy a file of this machine into the folder (see `Session.import_file`)."""
        target = self._inside(name or Path(source).name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def get(self, name: str, target: str | os.PathLike[str]) -> None:
        """Copy a file of the folder to this machine (see `Session.export_file`)."""
        shutil.copyfile(self._file(name), target, follow_symlinks=False)

    def delete(self, name: str) -> None:
        """Delete a file of the folder (see `Session.delete_file`)."""
        self._file(name).unlink()

    def clear(self) -> None:
        """Delete all files."""
        shutil.rmtree(self._files)
        self._files.mkdir()

    def begin(self) -> Path:
        """Return the folder that a run works in."""
        shutil.copytree(self._files, self._copy, symlinks=True)
        return self._copy

    def keep(self) -> None:
        """Keep what the run made of it."""
        shutil.rmtree(self._files)
        self._copy.rename(self._files)

    def end(self) -> None:
        """Forget the run's folder, if it wasn't kept."""
        if self._copy.exists():
            shutil.rmtree(self._copy)

    def _inside(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or parts[0] == "/" or "\0" in name:
            raise UsageError(f"{name!r} is no name of a file in the session's folder.")
        path = self._files.joinpath(*parts)
        # A run may have made a link that leads elsewhere.
        if not path.parent.resolve().is_relative_to(self._files.resolve()) or path.is_symlink():
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
