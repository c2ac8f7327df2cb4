"""Bundles: `<tag>-<platform>.tar.gz`, checked and unpacked.

The builder checks what it made with this code, and the runtime what it was given. `reader` holds the
contract, `rules` names every rule of it, `limits` every bound.

Unpacking writes no byte outside the folder made for it: folders are opened one from the other, never through
a symlink, and files are made relative to the folder that is open. Whatever a name says, and whatever else
happens in the file system meanwhile, a write goes below the destination.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from .errors import CapsuleError, UsageError
from .reader import BundleInfo, BundleReader, Content, open_bundle
from .tarheaders import Kind, Member

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

__all__ = [
    "BundleInfo",
    "BundleReader",
    "Content",
    "Kind",
    "Member",
    "check_bundle",
    "extract_bundle",
    "open_bundle",
    "read_members",
    "remove_tree",
    "unpack",
]

_CHUNK_BYTES: Final = 1 << 20
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NANOSECONDS: Final = 1_000_000_000


def check_bundle(path: Path) -> BundleInfo:
    """Check a bundle's whole contract and return what it is.

    Raises:
        UsageError: There is no such file, or it can't be read.
        BundleError: It breaks a rule; the message names the member and the rule.
    """
    with open_bundle(path) as reader:
        for _ in reader:
            pass
        return reader.info


def read_members(stream: IO[bytes]) -> Iterator[tuple[Member, Content]]:
    """Yield each member of a bundle with its content, checked; the iteration's end says that all is well.

    Raises:
        BundleError: While iterating: a rule is broken.
    """
    yield from BundleReader(stream)


def extract_bundle(path: Path, destination: Path) -> BundleInfo:
    """Unpack a bundle into a folder that is made for it.

    Modes and times are the archive's, whatever the umask is; owners are the caller's. On any error, also an
    interrupt, the folder is removed again. What was unpacked is what the returned digest is of.

    Args:
        path: The bundle.
        destination: The folder to make; it must not exist, its parent must.

    Raises:
        UsageError: The bundle can't be read, or the destination can't be made.
        BundleError: The bundle breaks a rule.
        CapsuleError: The file system doesn't take it, for lack of room for example.
    """
    with open_bundle(path) as reader:
        try:
            unpack(reader, destination)
        except FileExistsError as error:
            raise UsageError(
                f"'{destination}' exists; a bundle is unpacked into a folder of its own.",
                hint="Name a folder that doesn't exist yet.",
            ) from error
        except OSError as error:
            if error.filename == str(destination):
                raise UsageError(f"The folder '{destination}' can't be made: {error.strerror}.") from error
            raise CapsuleError(
                f"'{path}' can't be unpacked into '{destination}': {error.strerror}."
            ) from error
        return reader.info


def unpack(members: Iterable[tuple[Member, Content]], destination: Path, *, read_only: bool = False) -> None:
    """Unpack checked members into a folder that is made for them; on any error it is removed again.

    Args:
        members: What a `BundleReader` gives.
        destination: The folder to make; it must not exist, its parent must.
        read_only: Whether files and folders end without write bits.

    Raises:
        OSError: The folder can't be made (`FileExistsError`: it is there), or there is no room.
    """
    destination.mkdir(mode=0o700)
    try:
        with _Folders(destination, ~0o222 if read_only else ~0) as folders:
            mtime = 0
            for member, content in members:
                mtime = member.mtime
                _place(folders, member, content)
            folders.finish(mtime)
    except BaseException:
        remove_tree(destination)
        raise


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it, also where write bits are missing; what can't be removed stays."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _place(folders: _Folders, member: Member, content: Content) -> None:
    parent, _, name = member.name.rpartition("/")
    folder = folders.open(parent)
    if member.kind is Kind.DIRECTORY:
        folders.make(folder, name, member)
    elif member.kind is Kind.SYMLINK:
        os.symlink(member.target, name, dir_fd=folder)
        os.utime(name, ns=_times(member.mtime), dir_fd=folder, follow_symlinks=False)
    else:
        handle = os.open(name, _FILE_FLAGS, 0o600, dir_fd=folder)
        with os.fdopen(handle, "wb", buffering=0) as stream:
            while chunk := content.read(_CHUNK_BYTES):
                _write_all(stream.fileno(), chunk)
            os.fchmod(stream.fileno(), member.mode & folders.mask)
            os.utime(stream.fileno(), ns=_times(member.mtime))


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _times(mtime: int) -> tuple[int, int]:
    return mtime * _NANOSECONDS, mtime * _NANOSECONDS


class _Folders:
    """The chain of open folders from the destination down to the one that was asked for last."""

    def __init__(self, destination: Path, mask: int) -> None:
        self.mask = mask
        """Which of the archive's permission bits are given."""
        self._root = os.open(destination, _FOLDER_FLAGS)
        self._chain: list[tuple[str, int]] = []
        self._made: list[tuple[str, int]] = []

    def __enter__(self) -> _Folders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(0)
        os.close(self._root)

    def open(self, path: str) -> int:
        """Return a descriptor of a folder below the destination; it is this object's to close."""
        components = path.split("/") if path else []
        common = 0
        for (name, _), component in zip(self._chain, components, strict=False):
            if name != component:
                break
            common += 1
        self._leave(common)
        for component in components[common:]:
            parent = self._chain[-1][1] if self._chain else self._root
            self._chain.append((component, os.open(component, _FOLDER_FLAGS, dir_fd=parent)))
        return self._chain[-1][1] if self._chain else self._root

    def make(self, parent: int, name: str, member: Member) -> None:
        """Make a folder in an open one."""
        os.mkdir(name, 0o700, dir_fd=parent)
        self._made.append((member.name, member.mode & self.mask))

    def finish(self, mtime: int) -> None:
        """Give all folders their modes, and their time, which writing into them changed."""
        for name, mode in reversed(self._made):
            folder = self.open(name)
            os.utime(folder, ns=_times(mtime))
            os.fchmod(folder, mode)
        os.utime(self._root, ns=_times(mtime))
        os.fchmod(self._root, 0o755 & self.mask)

    def _leave(self, depth: int) -> None:
        while len(self._chain) > depth:
            os.close(self._chain.pop()[1])
