"""The rules of the bundle contract by name, and the error that names the one that was broken.

A rule's name stands in every rejection, so that a person, a test or a machine can tell why a bundle was
refused. The modules beside this one each hold a few of them: `gzipstream`, `tarheaders`, `names`, `tree`
and `reader`.
"""

from __future__ import annotations

from enum import Enum

from .errors import ContractError

_SHOWN_CHARACTERS = 200
"""How much of a hostile name an error repeats."""


class Rule(Enum):
    """What every bundle keeps. The value is the name that rejections carry."""

    GZIP_HEADER = "gzip-header"
    """One plain gzip header: no flags, name, comment, extra field or time."""
    GZIP_DATA = "gzip-data"
    """The compressed data is whole and valid."""
    GZIP_CHECKSUM = "gzip-checksum"
    """The stored CRC-32 and length are those of the data."""
    GZIP_END = "gzip-end"
    """Nothing stands behind the one gzip member, not even another one."""
    EXPANSION_RATIO = "expansion-ratio"
    """The data doesn't grow beyond a bound when it is unpacked."""
    UNPACKED_SIZE = "unpacked-size"
    """All of the tar, and the contents that its headers announce, stay below a bound."""
    TAR_END = "tar-end"
    """Two zero blocks, then zeros to the end of the record, then nothing."""
    TAR_TRUNCATED = "tar-truncated"
    """The tar isn't cut off inside a header or a member's content."""
    HEADER_CHECKSUM = "header-checksum"
    """A header's checksum is the unsigned sum of its bytes."""
    HEADER_FORM = "header-form"
    """A header is spelled in the one way that `tarheaders` documents, to the last byte."""
    OCTAL_NUMBER = "octal-number"
    """Numbers in headers are octal digits that fill their field, then NUL: no base-256, no blanks."""
    EXTENDED_HEADER = "extended-header"
    """An extended header carries a long or non-ASCII path or link target, and nothing else."""
    MEMBER_KIND = "member-kind"
    """Members are regular files, directories and symlinks: no hard link, device, FIFO or vendor type."""
    OWNER = "owner"
    """Owner and group are 0, without names."""
    MODE = "mode"
    """0755 or 0644 for files, 0755 for directories: no setuid, setgid or sticky bit."""
    ONE_MTIME = "one-mtime"
    """All members carry the same time."""
    CONTENT_SIZE = "content-size"
    """Directories and symlinks have no content."""
    ZERO_PADDING = "zero-padding"
    """What fills a content up to its last block is zeros."""
    MEMBER_COUNT = "member-count"
    """There are not more members than a bound."""
    LEVELS = "levels"
    """Names are not deeper than a bound."""
    NAME_LENGTH = "name-length"
    """Names, their components and link targets are not longer than a bound."""
    NAME_ENCODING = "name-encoding"
    """Names are UTF-8; what isn't ASCII stands in an extended header."""
    RELATIVE_NAME = "relative-name"
    """No name is absolute."""
    PLAIN_NAME = "plain-name"
    """No component of a name is empty, `.` or `..`."""
    NAME_CHARACTERS = "name-characters"
    """No backslash, control or invisible formatting character in a name or link target."""
    DUPLICATE = "duplicate"
    """No two members have one name, also when case is ignored."""
    PARENT_FOLDER = "parent-folder"
    """A member's folder is a directory that stands before it: never absent, a symlink or a file."""
    LINK_TARGET = "link-target"
    """A symlink's target is relative and not empty."""
    LINK_INSIDE = "link-inside"
    """A symlink, followed through all others, stays inside the bundle."""
    LINK_LOOP = "link-loop"
    """Following a symlink ends."""
    MANIFEST_FIRST = "manifest-first"
    """The first member is the manifest, a regular file."""
    MANIFEST = "manifest"
    """The manifest says what a manifest must say."""
    LAUNCHER = "launcher"
    """The launcher that the manifest names is an executable of the bundle."""
    TOOLS = "tools"
    """The tools that the manifest names are executables of the bundle."""
    LOADERS = "loaders"
    """The loaders of both C libraries are there."""
    LICENSES = "licenses"
    """Licence texts are there."""
    SBOM = "sbom"
    """The software bill of materials is there, and is a JSON object."""


class BundleError(ContractError):
    """A bundle breaks a rule of its contract.

    Attributes:
        rule: The rule.
        member: The name of the member that breaks it; `None` when it is the bundle as a whole.
    """

    def __init__(self, rule: Rule, detail: str, *, member: str | None = None) -> None:
        subject = "The bundle" if member is None else f"Member '{shown(member)}'"
        super().__init__(f"{subject} breaks the rule '{rule.value}': {detail}")
        self.rule = rule
        self.member = member

    def locate(self, place: object) -> BundleError:
        """Put the file that the bundle was read from before the message, and return the error."""
        self.message = f"{place}: {self.message}"
        return self


def shown(name: str) -> str:
    """Return a name as an error can print it: on one line, escaped, not endless."""
    text = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
