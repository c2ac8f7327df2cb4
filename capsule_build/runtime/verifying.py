"""Holding an installed capsule against its bundle, byte by byte."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from .environment import OnThisMachine, Readable, piped
from .errors import CapsuleError, TargetError
from .installing import installed, not_installed
from .platforms import Platform
from .reader import open_bundle
from .scripts import PACK
from .tarheaders import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .environment import Environment
    from .installing import Installed
    from .reader import Content
    from .registry import Registry
    from .store import Store

_CHUNK_BYTES: Final = 1 << 20
_SECONDS: Final = 900.0
_SHOWN: Final = 20
_KINDS: Final = {tarfile.REGTYPE: Kind.FILE, tarfile.DIRTYPE: Kind.DIRECTORY, tarfile.SYMTYPE: Kind.SYMLINK}


class DifferenceError(CapsuleError):
    """An installed capsule isn't what its bundle holds.

    Attributes:
        differences: For each path below the install root, what is wrong with it.
    """

    def __init__(self, message: str, differences: dict[str, str]) -> None:
        super().__init__(message, hint="Uninstall it and install it again; and find out who changed it.")
        self.differences = differences


@dataclass(frozen=True)
class _Entry:
    """What is compared of a file: its kind, permission bits, and content's digest or link target."""

    kind: Kind | None
    mode: int
    content: str


def verify(tag: str, environment: Environment, *, registry: Registry, store: Store) -> Installed:
    """Read an installed capsule whole and compare it with its bundle: names, kinds, modes and contents.

    The bundle must be in the store, or is downloaded.

    Raises:
        TargetError: The capsule isn't installed, or the environment can't be read.
        DifferenceError: It has been changed; the message lists how.
        InputError: The bundle can't be had, or isn't the registry lock's.
    """
    found = installed(tag, environment, registry=registry)
    if found is None:
        raise not_installed(tag, environment)
    bundle = store.get(registry.resolve(tag, Platform.parse(found.platform)))
    expected = _of_bundle(bundle)
    actual = dict(_of_environment(environment, found.root))
    differences = {}
    for path in sorted(expected.keys() | actual.keys()):
        what = _difference(expected.get(path), actual.get(path))
        if what is not None:
            differences[path] = what
    if differences:
        lines = [f"  {path or '.'}: {what}" for path, what in differences.items()]
        if len(lines) > _SHOWN:
            lines[_SHOWN:] = [f"  and {len(lines) - _SHOWN} more"]
        raise DifferenceError(
            f"{environment.name}: '{found.root}' is not what its bundle holds:\n" + "\n".join(lines),
            differences,
        )
    return found


def _difference(expected: _Entry | None, actual: _Entry | None) -> str | None:
    if expected is None:
        return "isn't in the bundle"
    if actual is None:
        return "is missing"
    if actual.kind is not expected.kind:
        return f"is {'a ' + actual.kind.value if actual.kind else 'no file, folder or symlink'}, not a " + (
            expected.kind.value if expected.kind else "member"
        )
    if actual.content != expected.content:
        return "points elsewhere" if expected.kind is Kind.SYMLINK else "has another content"
    if actual.kind is not Kind.SYMLINK and actual.mode != expected.mode:
        return f"has the mode {actual.mode:04o}, not {expected.mode:04o}"
    return None


def _of_bundle(bundle: Path) -> dict[str, _Entry]:
    entries = {"": _Entry(Kind.DIRECTORY, 0o555, "")}
    with open_bundle(bundle) as reader:
        for member, content in reader:
            held = _digest(content) if member.kind is Kind.FILE else member.target
            entries[member.name] = _Entry(member.kind, member.mode & ~0o222, held)
    return entries


def _of_environment(environment: Environment, root: str) -> Iterator[tuple[str, _Entry]]:
    if isinstance(environment, OnThisMachine):
        return _of_folder(Path(environment.local_path(root)))
    if isinstance(environment, Readable):
        return _of_tar(environment, root)
    return _of_targets_tar(environment, root)


def _of_folder(root: Path) -> Iterator[tuple[str, _Entry]]:
    pending = [root]
    while pending:
        path = pending.pop()
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        name = "" if path == root else str(path.relative_to(root))
        if stat.S_ISDIR(status.st_mode):
            yield name, _Entry(Kind.DIRECTORY, mode, "")
            pending += path.iterdir()
        elif stat.S_ISLNK(status.st_mode):
            yield name, _Entry(Kind.SYMLINK, mode, os.readlink(path))  # noqa: PTH115 (Path would drop a './')
        elif stat.S_ISREG(status.st_mode):
            with path.open("rb") as stream:
                yield name, _Entry(Kind.FILE, mode, _digest(stream))
        else:
            yield name, _Entry(None, mode, "")


def _of_tar(environment: Readable, root: str) -> Iterator[tuple[str, _Entry]]:
    with piped(environment.copy_out(root)) as stream:
        yield from _of_stream(stream, root)


def _of_targets_tar(environment: Environment, root: str) -> Iterator[tuple[str, _Entry]]:
    folder, _, name = root.rpartition("/")
    result = environment.run(["/bin/sh", "-c", PACK, "pack", folder, name], timeout=_SECONDS)
    if result.code != 0:
        raise TargetError(
            f"{environment.name}: '{root}' can't be read: {result.error_text.strip()}",
            hint="A tar program must be there.",
        )
    yield from _of_stream(io.BytesIO(result.stdout), root)


def _of_stream(stream: IO[bytes], root: str) -> Iterator[tuple[str, _Entry]]:
    top = root.rpartition("/")[2]
    contents: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = member.name.strip("/")
                path = "" if name == top else name.removeprefix(f"{top}/")
                if member.islnk():
                    # Files with several names, as the manifest with its mark has, may be packed as such.
                    yield path, _Entry(Kind.FILE, member.mode, contents.get(member.linkname, ""))
                    continue
                kind = _KINDS.get(member.type)
                source = archive.extractfile(member) if kind is Kind.FILE else None
                held = member.linkname if kind is Kind.SYMLINK else _digest(source) if source else ""
                contents[member.name] = held
                yield path, _Entry(kind, member.mode & 0o7777, held)
    except tarfile.TarError as error:
        raise TargetError(f"What was read of '{root}' is not a tar: {error}.") from error


def _digest(content: Content | IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := content.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
