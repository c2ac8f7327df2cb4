"""The headers of a bundle's tar: POSIX ustar (IEEE Std 1003.1, pax) in the one spelling that is allowed.

A header is read by taking its values out, writing them again with `encode`, and comparing every byte. So
nothing in a header can mean one thing to this reader and another to a second one. The spelling is what
Python's `tarfile` writes as `PAX_FORMAT`:

- numbers are octal digits that fill their field, then one NUL; the checksum is six digits, NUL, blank;
- owner and group are 0 without names; device numbers and the `prefix` field are NUL bytes;
- a directory's name ends with a slash;
- a name of more than 100 bytes, or not ASCII, stands in an extended header (type `x`) before the member's
  own, as the record `path`; a symlink's target likewise as `linkpath`. The member's own fields then hold the
  first 100 characters, with `?` for each that isn't ASCII. Such a header carries only what is needed.

Global extended headers, GNU's and others' types don't exist here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from .limits import MAX_NAME_BYTES
from .rules import BundleError, Rule

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK_BYTES: Final = 512
"""A tar consists of blocks of this size."""

RECORD_BYTES: Final = 20 * BLOCK_BYTES
"""A tar's whole size is a multiple of this."""

ZERO_BLOCK: Final = bytes(BLOCK_BYTES)
"""Two of these end a tar."""

_FIELD_BYTES: Final = 100
_MAX_PAX_BYTES: Final = 2 * MAX_NAME_BYTES + 64
_PAX_NAME: Final = "././@PaxHeader"
_PAX_TYPE: Final = b"x"


class Kind(Enum):
    """What a member is."""

    FILE = "regular file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"


_TYPES: Final = {Kind.FILE: b"0", Kind.DIRECTORY: b"5", Kind.SYMLINK: b"2"}
_KINDS: Final = {letter: kind for kind, letter in _TYPES.items()}
_REFUSED_TYPES: Final = {
    b"\0": "a regular file in the form of before 1988",
    b"1": "a hard link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"7": "a contiguous file",
    b"g": "a global extended header",
    b"L": "a GNU long name",
    b"K": "a GNU long link target",
    b"S": "a GNU sparse file",
    b"D": "a GNU directory dump",
    b"M": "a GNU continuation of another volume",
    b"V": "a GNU volume label",
    b"X": "a Solaris extended header",
}

_FIELDS: Final = (
    ("name", 0, 100, Rule.HEADER_FORM),
    ("mode", 100, 108, Rule.HEADER_FORM),
    ("uid", 108, 116, Rule.OWNER),
    ("gid", 116, 124, Rule.OWNER),
    ("time", 136, 148, Rule.HEADER_FORM),
    ("link target", 157, 257, Rule.HEADER_FORM),
    ("magic and version", 257, 265, Rule.HEADER_FORM),
    ("user name", 265, 297, Rule.OWNER),
    ("group name", 297, 329, Rule.OWNER),
    ("device numbers", 329, 345, Rule.HEADER_FORM),
    ("prefix", 345, 500, Rule.HEADER_FORM),
    ("last bytes", 500, 512, Rule.HEADER_FORM),
)
"""Fields with their first byte, the byte behind their last, and the rule that another spelling breaks. Size,
type and checksum aren't here: they are judged where they are read."""


@dataclass(frozen=True)
class Member:
    """One entry of a bundle.

    Attributes:
        name: Its path below the install root, without a slash at the end.
        kind: What it is.
        mode: Its permission bits.
        mtime: Its time, in seconds since 1970.
        size: Its content's size in bytes; 0 for what isn't a regular file.
        target: What a symlink points at; else empty.
    """

    name: str
    kind: Kind
    mode: int
    mtime: int
    size: int = 0
    target: str = ""


def encode(member: Member) -> bytes:
    """Return a member's header blocks: one, or three where an extended header is needed.

    The member's values aren't judged here; its numbers must fit their fields (a size below 8 GiB).
    """
    name = _stored_name(member)
    records = _records(name, member.target)
    blocks = b""
    if records:
        blocks = _block(_PAX_NAME, _PAX_TYPE, size=len(records)) + records + padding(len(records))
    return blocks + _block(
        name,
        _TYPES[member.kind],
        mode=member.mode,
        size=member.size,
        mtime=member.mtime,
        target=member.target,
    )


def padding(size: int) -> bytes:
    """Return the zeros that fill a content of `size` bytes up to a whole block."""
    return bytes(-size % BLOCK_BYTES)


def read_header(read: Callable[[int], bytes], after: str) -> Member | None:
    """Read the next member's header blocks.

    Args:
        read: Returns the next so many bytes of the tar, fewer only at its end.
        after: The name of the member before, for errors.

    Returns:
        The member, its name and target not judged yet; `None` where the first zero block stands.

    Raises:
        BundleError: The header isn't in the one form, or the tar is cut off.
    """
    block = _read_block(read, after)
    if block == ZERO_BLOCK:
        return None
    _check_sum(block, after)
    extended: dict[str, str] = {}
    records = b""
    if block[156:157] == _PAX_TYPE:
        records, extended = _read_extended(block, read, after)
        block = _read_block(read, after)
        if block == ZERO_BLOCK or block[156:157] == _PAX_TYPE:
            raise BundleError(
                Rule.EXTENDED_HEADER,
                "an extended header has no member behind it.",
                member=extended.get("path", after),
            )
        _check_sum(block, after)
    name = _text(block[0:100], extended.get("path"), after)
    kind = _KINDS.get(block[156:157])
    if kind is None:
        letter = block[156:157]
        what = _REFUSED_TYPES.get(letter, "of a type that no standard knows")
        raise BundleError(Rule.MEMBER_KIND, f"it is {what} (type {ascii(letter)[1:]}).", member=name)
    member = Member(
        name=name[:-1] if kind is Kind.DIRECTORY and name.endswith("/") else name,
        kind=kind,
        mode=_number(block, "mode", 100, 108, name),
        size=_number(block, "size", 124, 136, name),
        mtime=_number(block, "mtime", 136, 148, name),
        target=_text(block[157:257], extended.get("linkpath"), name) if kind is Kind.SYMLINK else "",
    )
    if records and records != _records(_stored_name(member), member.target):
        raise BundleError(
            Rule.EXTENDED_HEADER,
            "its extended header isn't the one that it needs: a record would fit its field, is for another "
            "kind of member, out of order, or a directory's without a slash at the end.",
            member=name,
        )
    _compare(block, encode(member)[-BLOCK_BYTES:], name)
    return member


def _stored_name(member: Member) -> str:
    return f"{member.name}/" if member.kind is Kind.DIRECTORY else member.name


def _block(
    name: str, letter: bytes, *, mode: int = 0, size: int = 0, mtime: int = 0, target: str = ""
) -> bytes:
    before = _field(name) + b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (mode, 0, 0, size, mtime)
    behind = letter + _field(target) + b"ustar\x0000"
    behind += bytes(BLOCK_BYTES - len(before) - len(behind) - 8)
    checksum = sum(before) + sum(b" " * 8) + sum(behind)
    return before + b"%06o\0 " % checksum + behind


def _field(text: str) -> bytes:
    return text.encode("ascii", "replace")[:_FIELD_BYTES].ljust(_FIELD_BYTES, b"\0")


def _records(name: str, target: str) -> bytes:
    """Return the records of the extended header that a stored name and a target need; none: empty."""
    return b"".join(
        _record(key, text)
        for key, text in (("path", name), ("linkpath", target))
        if len(text) > _FIELD_BYTES or not text.isascii()
    )


def _record(key: str, text: str) -> bytes:
    rest = f" {key}={text}\n".encode()
    length = len(rest) + len(str(len(rest)))
    return str(len(rest) + len(str(length))).encode() + rest


def _read_block(read: Callable[[int], bytes], after: str) -> bytes:
    block = read(BLOCK_BYTES)
    if len(block) < BLOCK_BYTES:
        raise BundleError(
            Rule.TAR_TRUNCATED, "the tar ends without its two zero blocks.", member=after or None
        )
    return block


def _check_sum(block: bytes, after: str) -> None:
    expected = sum(block) - sum(block[148:156]) + sum(b" " * 8)
    if block[148:156] != b"%06o\0 " % expected:
        name = block[0:100].split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
        raise BundleError(
            Rule.HEADER_CHECKSUM,
            f"the header's checksum reads {ascii(block[148:156])[1:]}, not '{expected:06o}', NUL, blank "
            f"(it stands behind '{after}').",
            member=name,
        )


def _read_extended(block: bytes, read: Callable[[int], bytes], after: str) -> tuple[bytes, dict[str, str]]:
    """Read an extended header; return its records as they stand, and their values."""
    place = f"the extended header behind '{after}'"
    size = _number(block, "size", 124, 136, place)
    _compare(block, _block(_PAX_NAME, _PAX_TYPE, size=size), place)
    if not 0 < size <= _MAX_PAX_BYTES:
        raise BundleError(
            Rule.EXTENDED_HEADER, f"it has {size} bytes, of 1 to {_MAX_PAX_BYTES} allowed.", member=place
        )
    data = read(size)
    fill = read(-size % BLOCK_BYTES)
    if len(data) < size or fill != padding(size):
        raise BundleError(
            Rule.EXTENDED_HEADER, "it is cut off, or padded with other than zeros.", member=place
        )
    found: dict[str, str] = {}
    rest = data
    while rest:
        start = re.match(rb"[1-9][0-9]{0,4} ", rest)
        length = int(start.group()) if start else 0
        record, rest = rest[:length], rest[length:]
        if (
            start is None
            or len(record) != length
            or not record.endswith(b"\n")
            or len(start.group()) >= length
        ):
            raise BundleError(Rule.EXTENDED_HEADER, "a record's length is not its length.", member=place)
        key, separator, value = record[start.end() : -1].partition(b"=")
        word = key.decode("ascii", "backslashreplace")
        if not separator or word not in ("path", "linkpath"):
            raise BundleError(
                Rule.EXTENDED_HEADER, f"it sets '{word}': only path and linkpath may be set.", member=place
            )
        if word in found:
            raise BundleError(Rule.EXTENDED_HEADER, f"it sets '{word}' twice.", member=place)
        try:
            found[word] = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BundleError(Rule.NAME_ENCODING, f"its '{word}' is not UTF-8.", member=place) from error
    return data, found


def _text(field: bytes, extended: str | None, member: str) -> str:
    """Return the text of a name's or a target's field, unless an extended header gave it."""
    if extended is not None:
        return extended
    raw = field.split(b"\0", 1)[0]
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError as error:
        name = raw.decode("utf-8", "backslashreplace")
        raise BundleError(
            Rule.NAME_ENCODING,
            f"'{ascii(name)[1:-1]}' is not ASCII, and no extended header gives it (behind '{member}').",
            member=name,
        ) from error


def _number(block: bytes, what: str, first: int, behind: int, member: str) -> int:
    field = block[first:behind]
    if not re.fullmatch(rb"[0-7]+\0", field):
        raise BundleError(
            Rule.OCTAL_NUMBER,
            f"its {what} reads {ascii(field)[1:]}, not octal digits that fill the field and one NUL.",
            member=member,
        )
    return int(field[:-1], 8)


def _compare(block: bytes, expected: bytes, member: str) -> None:
    """Raise an error that names the first field in which two blocks differ."""
    if block == expected:
        return
    for what, first, behind, rule in _FIELDS:
        if block[first:behind] != expected[first:behind]:
            raise BundleError(
                rule,
                f"the header's {what} reads {_shortened(block[first:behind])}, where "
                f"{_shortened(expected[first:behind])} must stand.",
                member=member,
            )


def _shortened(field: bytes) -> str:
    return ascii(field.rstrip(b"\0"))[1:] if field.rstrip(b"\0") else "nothing"
