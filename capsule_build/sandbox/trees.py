"""Where the modules of a task come from: folders of this machine, or what was packed from them."""

from __future__ import annotations

import os

from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final

MAX_FILE_BYTES: Final = 32 << 20
"""Of one module or data file."""


class FolderTree:
    """A folder. What leads out of it by a symlink isn't there.

    Args:
        path: The folder.
    """

    def __init__(self, path: str) -> None:
        self._top = os.path.realpath(path)

    def _find(self, name: str) -> str | None:
        path = os.path.realpath(f"{self._top}/{name}")
        return path if path.startswith(self._top.rstrip("/") + "/") else None

    def kind(self, name: str) -> str | None:
        """Return `file`, `folder`, or `None` where nothing is."""
        path = self._find(name)
        if path is None:
            return None
        if os.path.isfile(path):
            return "file"
        return "folder" if os.path.isdir(path) else None

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            OSError: It can't be read, or is too large.
        """
        path = self._find(name)
        if path is None:
            raise FileNotFoundError(name)
        with open(path, "rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(f"{name} has more than {MAX_FILE_BYTES} bytes")
        return data

    def names(self, name: str) -> list[str]:
        """Return what a folder holds, sorted."""
        path = self._find(name)
        return [] if path is None else sorted(os.listdir(path))


class PackedTree:
    """Files in memory.

    Args:
        files: Their bytes, by their names.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._folders: dict[str, set[str]] = {}
        for path in files:
            folder, _, name = path.rpartition("/")
            self._folders.setdefault(folder, set()).add(name)
            while folder:
                folder, _, name = folder.rpartition("/")
                self._folders.setdefault(folder, set()).add(name)

    def kind(self, name: str) -> str | None:
        """Return `file`, `folder`, or `None` where nothing is."""
        if name in self._files:
            return "file"
        return "folder" if name in self._folders else None

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: It isn't there.
        """
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def names(self, name: str) -> list[str]:
        """Return what a folder holds, sorted."""
        return sorted(self._folders.get(name, ()))


Tree = FolderTree | PackedTree
"""Files by relative names; a name never climbs."""


class Found(Record):
    """A file of a tree, by its relative name and its bytes."""

    name: str
    data: bytes


def walk(tree: Tree, name: str) -> Iterator[Found]:
    """Yield all files below a folder, or the file itself; no compiled Python."""
    kind = tree.kind(name)
    if kind == "file":
        yield Found(name, tree.read(name))
    elif kind == "folder":
        for inner in tree.names(name):
            if inner != "__pycache__" and not inner.startswith("."):
                yield from walk(tree, f"{name}/{inner}")
