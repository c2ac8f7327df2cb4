"""Putting a bundle's tree in its place: what is done to an environment, step by step.

`layout` says what lies where and why no moment between looks installed. Where this process sees the
environment's files (`OnThisMachine`) it works on them itself; elsewhere the engine unpacks, and short shell
programs do the rest.
"""

from __future__ import annotations

import tarfile
from io import BytesIO
from typing import TYPE_CHECKING, Final, Protocol

from .environment import OnThisMachine
from .errors import ContractError, DigestError, TargetError
from .layout import staging, trash
from .local_placing import LocalPlacer
from .manifest import Manifest
from .reader import open_bundle
from .scripts import COMMIT, FINISH, PREPARE, REMOVE, RMDIR
from .tarheaders import BLOCK_BYTES, Kind, padding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .environment import Environment
    from .layout import Mark
    from .reader import BundleReader, Content
    from .registry import Resolved
    from .target import Target
    from .tarheaders import Member

    Members = Iterator[tuple[Member, Content]]

_SECONDS: Final = 300.0
_TAKEN: Final = 8
_CHUNK_BYTES: Final = 1 << 20
_KINDS: Final = {Kind.FILE: tarfile.REGTYPE, Kind.DIRECTORY: tarfile.DIRTYPE, Kind.SYMLINK: tarfile.SYMTYPE}


class Placer(Protocol):
    """Changes what of capsules is in one environment."""

    def prepare(self, token: str, left_behind: Sequence[str]) -> None:
        """Make the folder of install roots, and remove entries of it that dead installers left.

        Raises:
            TargetError: The folder can't be made, or isn't this user's.
        """

    def stage(self, token: str, name: str, members: Members) -> None:
        """Unpack a bundle's members under a token; on an error nothing of them stays.

        An error while iterating over `members` comes out as it is.

        Raises:
            TargetError: The environment doesn't take them.
        """

    def commit(self, mark: Mark, old: Mark | None) -> bool:
        """Give what was staged its name and mark, in place of an old one or of none.

        False: the name was taken meanwhile; what was staged is removed.

        Raises:
            TargetError: It can't be done; what was staged is removed.
        """

    def remove(self, token: str, paths: Sequence[str]) -> None:
        """Remove paths, each out of sight in one step.

        Raises:
            TargetError: One can't be removed.
        """

    def tidy(self, folders: Sequence[str]) -> None:
        """Remove those of the folders that are empty; others stay, without an error."""

    def finish(self, root: str) -> None:
        """Take the write bits from an install root whose installer was killed just before it did that."""


def placer(environment: Environment, target: Target) -> Placer:
    """Return what changes an environment."""
    if isinstance(environment, OnThisMachine):
        return LocalPlacer(environment, target.user)
    return ShellPlacer(environment, target)


def stage_bundle(
    place: Placer,
    bundle: Path,
    resolved: Resolved,
    token: str,
    left_behind: Sequence[str],
    progress: Callable[[int, int], None] | None,
) -> Manifest:
    """Check a bundle and unpack it under a token, in one pass; return its manifest.

    What dead installers left is removed first.

    Raises:
        BundleError: It breaks its contract.
        ContractError: It is another one than the registry lock says.
        TargetError: The environment doesn't take it.
    """
    name = resolved.variant.install_root.rpartition("/")[2]
    with open_bundle(bundle) as reader:
        place.prepare(token, left_behind)
        place.stage(token, name, _checked(reader, bundle, resolved, progress))
        return reader.info.manifest


def check_manifest(manifest: Manifest, resolved: Resolved) -> None:
    """Check that a manifest says what the registry lock says.

    Raises:
        ContractError: They disagree; the message names the field.
    """
    capsule, variant = resolved.capsule, resolved.variant
    for field, found, expected in (
        ("runtime.id", manifest.runtime_id, capsule.runtime_id),
        ("runtime.version", manifest.runtime_version, capsule.runtime_version),
        ("platform", str(manifest.platform), str(resolved.platform)),
        ("install_root", manifest.install_root, variant.install_root),
        ("tools", ", ".join(sorted(manifest.tools)), ", ".join(sorted(capsule.tools))),
    ):
        if found != expected:
            raise ContractError(
                f"'{variant.filename}': its manifest's '{field}' is '{found}', where the registry lock says "
                f"'{expected}' for '{resolved.tag}' on {resolved.platform}."
            )


def _checked(
    reader: BundleReader, bundle: Path, resolved: Resolved, progress: Callable[[int, int], None] | None
) -> Members:
    """Yield a bundle's members; the end says that it is the one of the registry lock."""
    for number, (member, content) in enumerate(reader):
        if not number:
            data = content.read()
            check_manifest(Manifest.from_bytes(data), resolved)
            yield member, BytesIO(data)
        else:
            yield member, content
        if progress is not None:
            progress(reader.packed_bytes, resolved.variant.size)
    if reader.info.sha256 != resolved.variant.sha256:
        raise DigestError(
            f"'{bundle}' has changed while it was read: its SHA-256 is {reader.info.sha256}, not "
            f"{resolved.variant.sha256}."
        )


class ShellPlacer:
    """Works through an environment's own three methods."""

    def __init__(self, environment: Environment, target: Target) -> None:
        self._environment = environment
        self._target = target

    def prepare(self, token: str, left_behind: Sequence[str]) -> None:
        """Make the folders, remove what was left (see `Placer.prepare`)."""
        self._run(PREPARE, str(self._target.user), staging(token), trash(token), *left_behind)

    def stage(self, token: str, name: str, members: Members) -> None:
        """Have the tree unpacked (see `Placer.stage`)."""
        try:
            self._environment.put_tree(
                _tar(members, name, self._target.user, self._target.group), staging(token)
            )
        except BaseException:
            self._discard(token)
            raise

    def commit(self, mark: Mark, old: Mark | None) -> bool:
        """Rename the tree (see `Placer.commit`)."""
        token = mark.token
        arguments = (staging(token), trash(token), mark.name, str(mark), str(old) if old else "")
        try:
            taken = self._run(COMMIT, str(self._target.user), *arguments) == _TAKEN
        except BaseException:
            self._discard(token)
            raise
        if taken:
            self._discard(token)
        return not taken

    def remove(self, token: str, paths: Sequence[str]) -> None:
        """Rename away, then remove (see `Placer.remove`)."""
        self._run(REMOVE, trash(token), *paths)

    def tidy(self, folders: Sequence[str]) -> None:
        """Remove empty folders (see `Placer.tidy`)."""
        self._run(RMDIR, *folders)

    def finish(self, root: str) -> None:
        """Take the write bits (see `Placer.finish`)."""
        self._run(FINISH, root)

    def _discard(self, token: str) -> None:
        """Remove what was staged; what can't be removed now is removed by the next installer."""
        self._environment.run(
            ["/bin/sh", "-c", REMOVE, "remove", trash(token), staging(token)], timeout=_SECONDS
        )

    def _run(self, script: str, *arguments: str) -> int:
        result = self._environment.run(["/bin/sh", "-c", script, "capsule", *arguments], timeout=_SECONDS)
        if result.code not in (0, _TAKEN):
            said = result.error_text.strip() or f"the shell ended with status {result.code}"
            raise TargetError(f"{self._environment.name}: {said}")
        return result.code


def _tar(members: Members, name: str, user: int, group: int) -> Iterator[bytes]:
    """Yield a tar of a folder with the members in it, without write bits, owned by a user.

    The folder itself keeps its owner's write bit until it has its place: renaming it needs that.
    """
    top = tarfile.TarInfo(name)
    top.type, top.mode, top.uid, top.gid = tarfile.DIRTYPE, 0o755, user, group
    begun = False
    for member, content in members:
        if not begun:
            begun = True
            top.mtime = member.mtime
            yield top.tobuf(tarfile.PAX_FORMAT)
        header = tarfile.TarInfo(f"{name}/{member.name}")
        header.type = _KINDS[member.kind]
        header.mode = member.mode if member.kind is Kind.SYMLINK else member.mode & ~0o222
        header.size, header.mtime, header.linkname = member.size, member.mtime, member.target
        header.uid, header.gid = user, group
        yield header.tobuf(tarfile.PAX_FORMAT)
        while chunk := content.read(_CHUNK_BYTES):
            yield chunk
        yield padding(member.size)
    # Two zero blocks and no more: Podman 4.3 fails over what stands behind them.
    yield bytes(2 * BLOCK_BYTES)
