"""Reading a bundle from front to back, checking its whole contract on the way.

Nothing is trusted: not sizes, not names, not the compressor. The layers are `gzipstream` (one gzip member),
`tarheaders` (the one spelling of a header), `names` and `tree` (what members may be, alone and together);
here they meet, and what the manifest promises is held against what is there.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from io import BytesIO
from typing import IO, TYPE_CHECKING, Final, Protocol

from .errors import UsageError
from .gzipstream import GzipReader
from .limits import MAX_MANIFEST_BYTES, MAX_SBOM_BYTES, MAX_UNPACKED_BYTES
from .manifest import FILE_NAME, Manifest, ManifestError
from .regular import open_regular
from .rules import BundleError, Rule
from .strict_json import JsonError, loads_object
from .tarheaders import BLOCK_BYTES, RECORD_BYTES, ZERO_BLOCK, Kind, Member, padding, read_header
from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LICENSES_FOLDER: Final = "share/licenses"
"""Where the components' licence texts are."""

SBOM_NAME: Final = "share/sbom.cdx.json"
"""The software bill of materials (CycloneDX 1.6, JSON)."""

LOADERS: Final = {
    "x86_64": ("abi/glibc/ld-linux-x86-64.so.2", "abi/musl/ld-musl-x86_64.so.1"),
    "aarch64": ("abi/glibc/ld-linux-aarch64.so.1", "abi/musl/ld-musl-aarch64.so.1"),
}
"""The private loaders that a bundle of an architecture carries: glibc's and musl's."""

_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle that keeps its contract is.

    Attributes:
        manifest: What it says of itself.
        sha256: The digest of the file, in hexadecimal.
        size: The file's size in bytes.
        members: How many members it has.
        unpacked_bytes: The sum of its files' sizes in bytes.
    """

    manifest: Manifest
    sha256: str
    size: int
    members: int
    unpacked_bytes: int


class Content(Protocol):
    """A regular file's content, to be read before the next member is asked for."""

    def read(self, size: int = ..., /) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""


class BundleReader:
    """Reads a bundle from front to back, once, and checks it on the way.

    Iterating gives each member with its content; what isn't read is skipped, still checked. Only when the
    iteration has ended without an error does the bundle keep its contract; `info` is there then.

    Args:
        stream: The bundle's bytes.

    Raises:
        BundleError: From the constructor or from an iteration: a rule is broken.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._gzip = GzipReader(stream)
        self._tree = Tree()
        self._manifest: Manifest | None = None
        self._sbom: dict[str, object] | None = None
        self._content_bytes = 0
        self._info: BundleInfo | None = None

    @property
    def info(self) -> BundleInfo:
        """What the bundle is.

        Raises:
            ValueError: The iteration hasn't ended.
        """
        if self._info is None:
            raise ValueError("the bundle hasn't been read to its end")
        return self._info

    @property
    def packed_bytes(self) -> int:
        """How much of the file has been read so far."""
        return self._gzip.packed_bytes

    @property
    def sbom(self) -> dict[str, object]:
        """The bundle's software bill of materials, as JSON values.

        Raises:
            ValueError: It hasn't been read yet.
        """
        if self._sbom is None:
            raise ValueError("the bundle hasn't been read to its SBOM")
        return self._sbom

    def __iter__(self) -> Iterator[tuple[Member, Content]]:
        try:
            yield from self._read()
        finally:
            self._gzip.close()

    def _read(self) -> Iterator[tuple[Member, Content]]:
        after = ""
        while (member := read_header(self._gzip.read, after)) is not None:
            self._admit(member)
            after = member.name
            if member.kind is Kind.FILE and member.name in (FILE_NAME, SBOM_NAME):
                yield member, BytesIO(self._keep(member))
            else:
                content = _StreamedContent(self._gzip, member)
                yield member, content
                content.skip()
            if self._gzip.read(-member.size % BLOCK_BYTES) != padding(member.size):
                raise BundleError(
                    Rule.ZERO_PADDING,
                    "what fills its last block is cut off, or not zeros.",
                    member=member.name,
                )
        self._check_end()
        self._tree.check_links()
        manifest = self._check_promises()
        self._info = BundleInfo(
            manifest=manifest,
            sha256=self._gzip.sha256,
            size=self._gzip.packed_bytes,
            members=len(self._tree),
            unpacked_bytes=self._content_bytes,
        )

    def _admit(self, member: Member) -> None:
        if not len(self._tree) and (member.name != FILE_NAME or member.kind is not Kind.FILE):
            raise BundleError(
                Rule.MANIFEST_FIRST,
                f"the first member must be '{FILE_NAME}', a file.",
                member=member.name,
            )
        self._content_bytes += member.size
        if self._content_bytes > MAX_UNPACKED_BYTES:
            raise BundleError(
                Rule.UNPACKED_SIZE,
                f"with its {member.size} bytes there are more than {MAX_UNPACKED_BYTES}.",
                member=member.name,
            )
        self._tree.add(member)

    def _keep(self, member: Member) -> bytes:
        """Read a document of the bundle's own, check it and return it."""
        is_manifest = member.name == FILE_NAME
        limit = MAX_MANIFEST_BYTES if is_manifest else MAX_SBOM_BYTES
        rule = Rule.MANIFEST if is_manifest else Rule.SBOM
        if member.size > limit:
            raise BundleError(
                rule, f"it has {member.size} bytes; more than {limit} can't be.", member=member.name
            )
        data = self._gzip.read(member.size)
        if len(data) < member.size:
            raise _cut_off(member)
        try:
            if is_manifest:
                self._manifest = Manifest.from_bytes(data)
            else:
                self._sbom = loads_object(data)
        except ManifestError as error:
            raise BundleError(rule, error.message, member=member.name) from error
        except JsonError as error:
            raise BundleError(rule, f"{error}.", member=member.name) from error
        return data

    def _check_end(self) -> None:
        """Check what stands behind the first zero block: one more, and zeros up to the end of the record."""
        if self._gzip.read(BLOCK_BYTES) != ZERO_BLOCK:
            raise BundleError(Rule.TAR_END, "there is one zero block where two must stand.")
        while rest := self._gzip.read(RECORD_BYTES):
            if rest.strip(b"\0"):
                raise BundleError(Rule.TAR_END, "something other than zeros stands behind the last member.")
            if len(rest) == RECORD_BYTES:
                raise BundleError(
                    Rule.TAR_END, "more zeros than a record holds stand behind the last member."
                )
        if self._gzip.unpacked_bytes % RECORD_BYTES:
            raise BundleError(
                Rule.TAR_END,
                f"the tar has {self._gzip.unpacked_bytes} bytes: no multiple of {RECORD_BYTES}.",
            )
        self._gzip.finish()

    def _check_promises(self) -> Manifest:
        """Hold what the manifest says, and what every bundle carries, against the members."""
        if self._manifest is None:
            raise BundleError(Rule.MANIFEST_FIRST, f"it is empty: '{FILE_NAME}' is missing.")
        if not self._tree.executable(self._manifest.launcher):
            raise BundleError(
                Rule.LAUNCHER, f"the launcher '{self._manifest.launcher}' is not an executable in it."
            )
        for name, path in sorted(self._manifest.tools.items()):
            if not self._tree.executable(path):
                raise BundleError(Rule.TOOLS, f"the tool '{name}' is not an executable in it, at '{path}'.")
        for loader in LOADERS[self._manifest.platform.architecture]:
            if not self._tree.executable(loader):
                raise BundleError(Rule.LOADERS, f"the loader '{loader}' is not an executable in it.")
        if not any(self._tree.files_below(LICENSES_FOLDER)):
            raise BundleError(Rule.LICENSES, f"there is no licence text below '{LICENSES_FOLDER}'.")
        if self._sbom is None:
            raise BundleError(Rule.SBOM, f"'{SBOM_NAME}' is missing.")
        return self._manifest


@contextlib.contextmanager
def open_bundle(path: Path) -> Iterator[BundleReader]:
    """Open a bundle for one pass; errors name the file.

    Raises:
        UsageError: There is no such file, or it can't be read.
        BundleError: It breaks a rule.
    """
    try:
        stream = open_regular(path)
    except OSError as error:
        raise UsageError(f"The bundle '{path}' can't be read: {error.strerror}.") from error
    with stream:
        try:
            yield BundleReader(stream)
        except BundleError as error:
            raise error.locate(path) from error.__cause__


class _StreamedContent:
    """A member's content, straight from the stream."""

    def __init__(self, source: GzipReader, member: Member) -> None:
        self._source = source
        self._member = member
        self._left = member.size

    def read(self, size: int = -1, /) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted)
        if len(data) < wanted:
            raise _cut_off(self._member)
        self._left -= wanted
        return data

    def skip(self) -> None:
        while self.read(_CHUNK_BYTES):
            pass


def _cut_off(member: Member) -> BundleError:
    return BundleError(
        Rule.TAR_TRUNCATED, f"the tar ends inside its {member.size} bytes.", member=member.name
    )
