"""Hand-made bad bundles: each is refused, for the rule that it breaks, and nothing of it is left anywhere."""

from __future__ import annotations

import io
import json
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import limits
from capsule_build.runtime.archive import BundleReader, check_bundle, extract_bundle, read_members
from capsule_build.runtime.rules import BundleError, Rule, shown
from tests import bundles
from tests.bundles import Entry, extended, file, folder, gzip, link, manifest, record, small_bundle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CASES: dict[str, tuple[Rule, Callable[[], bytes]]] = {}


def bad(name: str, rule: Rule, make: Callable[[], bytes]) -> None:
    assert name not in CASES
    CASES[name] = (rule, make)


def added(*entries: Entry) -> Callable[[], bytes]:
    """The small bundle with more members at its end."""
    return lambda: small_bundle().add(*entries).data()


def changed(member: str, /, **fields: bytes | None) -> Callable[[], bytes]:
    """The small bundle with raw header fields of one member changed."""
    return lambda: small_bundle().change(member, **fields).data()


def packed(**options: object) -> Callable[[], bytes]:
    """The small bundle's tar in another gzip."""
    return lambda: gzip(small_bundle().tar(), **options)  # type: ignore[arg-type]  # options of several types


def manifested(**changes: object) -> Callable[[], bytes]:
    return lambda: small_bundle(document=manifest(**changes)).data()


def raw_manifest(data: bytes) -> Callable[[], bytes]:
    return lambda: small_bundle().replace(bundles.MANIFEST, file(bundles.MANIFEST, data)).data()


def with_records(records: bytes, entry: Entry | None = None, **fields: bytes) -> Callable[[], bytes]:
    """The small bundle and a member behind an extended header."""
    place = entry or file("share/x", b"x")
    return lambda: small_bundle().add(Entry(**{**vars(place), "before": extended(records, **fields)})).data()


def cut(size: int) -> Callable[[], bytes]:
    """The small bundle's tar cut off after so many bytes, in a right gzip."""
    return lambda: gzip(small_bundle().tar()[:size])


def edited(edit: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    """The small bundle's packed bytes, edited."""
    return lambda: edit(small_bundle().data())


PLAIN_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
CONTENTS_END = len(b"".join(member.blocks() for member in small_bundle().members))

# gzip
bad("empty file", Rule.GZIP_HEADER, lambda: b"")
bad("a tar without gzip", Rule.GZIP_HEADER, lambda: small_bundle().tar())
bad("header cut off", Rule.GZIP_HEADER, lambda: PLAIN_HEADER[:7])
bad("other compression method", Rule.GZIP_HEADER, packed(header=b"\x1f\x8b\x07\0\0\0\0\0\0\xff"))
bad("a name in the gzip header", Rule.GZIP_HEADER, packed(header=b"\x1f\x8b\x08\x08\0\0\0\0\0\xffname\0"))
bad(
    "an extra field in the gzip header",
    Rule.GZIP_HEADER,
    packed(header=b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\0\0"),
)
bad("a comment in the gzip header", Rule.GZIP_HEADER, packed(header=b"\x1f\x8b\x08\x10\0\0\0\0\0\xffhi\0"))
bad("a time in the gzip header", Rule.GZIP_HEADER, packed(header=b"\x1f\x8b\x08\0\1\0\0\0\0\xff"))
bad("reserved gzip flags", Rule.GZIP_HEADER, packed(header=b"\x1f\x8b\x08\x80\0\0\0\0\0\xff"))
bad("another gzip operating system", Rule.GZIP_HEADER, packed(header=b"\x1f\x8b\x08\0\0\0\0\0\0\x0b"))
bad("damaged deflate data", Rule.GZIP_DATA, edited(lambda data: data[:10] + b"\xff" * 40 + data[50:]))
bad("gzip cut off in its data", Rule.GZIP_DATA, edited(lambda data: data[:300]))
bad("gzip cut off in its trailer", Rule.GZIP_DATA, edited(lambda data: data[:-3]))
bad("gzip without trailer", Rule.GZIP_DATA, edited(lambda data: data[:-8]))
bad("gzip only a header", Rule.GZIP_DATA, lambda: PLAIN_HEADER)
bad("wrong CRC", Rule.GZIP_CHECKSUM, edited(lambda data: data[:-8] + b"\0\0\0\0" + data[-4:]))
bad("wrong length", Rule.GZIP_CHECKSUM, edited(lambda data: data[:-4] + struct.pack("<I", 7)))
bad("a second gzip member", Rule.GZIP_END, edited(lambda data: data + gzip(b"")))
bad("the same gzip member twice", Rule.GZIP_END, edited(lambda data: data + data))
bad("a zero behind the gzip member", Rule.GZIP_END, edited(lambda data: data + b"\0"))
bad("garbage behind the gzip member", Rule.GZIP_END, edited(lambda data: data + b"garbage"))
bad("tar split over two gzip members", Rule.TAR_TRUNCATED, lambda: gzip(b"") + small_bundle().data())
bad("a bomb of zeros", Rule.EXPANSION_RATIO, added(file("share/zeros", bytes(24 << 20))))
bad(
    "a bomb behind the end of the tar",
    Rule.TAR_END,
    lambda: gzip(small_bundle().tar() + bytes(24 << 20)),
)

# The tar's frame
bad("empty tar", Rule.TAR_TRUNCATED, lambda: gzip(b""))
bad("only the end of a tar", Rule.MANIFEST_FIRST, lambda: gzip(bytes(bundles.RECORD)))
bad("cut off in the first header", Rule.TAR_TRUNCATED, cut(300))
bad("cut off in a content", Rule.TAR_TRUNCATED, cut(512 + 100))
bad("cut off in the manifest's padding", Rule.ZERO_PADDING, cut(512 + 500))
bad("cut off in a later content", Rule.TAR_TRUNCATED, cut(CONTENTS_END - 510))
bad("cut off behind a member", Rule.TAR_TRUNCATED, cut(CONTENTS_END))
bad("one zero block", Rule.TAR_END, cut(CONTENTS_END + 512))
bad("no padding to the record", Rule.TAR_END, cut(CONTENTS_END + 1024))
bad("odd end", Rule.TAR_END, cut(CONTENTS_END + 1024 + 100))
bad("one record too many", Rule.TAR_END, lambda: gzip(small_bundle().tar() + bytes(bundles.RECORD)))
bad("half a record too many", Rule.TAR_END, lambda: gzip(small_bundle().tar() + bytes(bundles.RECORD // 2)))
bad("bytes behind the zero blocks", Rule.TAR_END, lambda: gzip(small_bundle().tar()[:-1] + b"x"))
bad(
    "a member behind one zero block",
    Rule.TAR_END,
    lambda: gzip(small_bundle().tar()[:CONTENTS_END] + bytes(512) + bundles.tar([file("share/x")])),
)
bad("a second tar behind the first", Rule.TAR_END, lambda: gzip(small_bundle().tar() + small_bundle().tar()))
bad("padding that isn't zeros", Rule.ZERO_PADDING, added(Entry(b"share/x", b"x", padding=b"\1" * 511)))

# Headers
bad("wrong checksum", Rule.HEADER_CHECKSUM, changed("bin/node", checksum=b"000001\0 "))
bad("checksum without NUL", Rule.HEADER_CHECKSUM, changed("bin/node", checksum=b"  1234 \0"))
bad("checksum in base 256", Rule.HEADER_CHECKSUM, changed("bin/node", checksum=b"\x80\0\0\0\0\0\x10\x10"))
bad("blank checksum", Rule.HEADER_CHECKSUM, changed("bin/node", checksum=b" " * 8))
bad("size in base 256", Rule.OCTAL_NUMBER, added(Entry(b"share/x", b"x", size=b"\x80" + bytes(10) + b"\1")))
bad("negative size in base 256", Rule.OCTAL_NUMBER, added(Entry(b"share/x", size=b"\xff" * 12)))
bad("size with blanks", Rule.OCTAL_NUMBER, added(Entry(b"share/x", b"x", size=b"         1 \0")))
bad("size without NUL", Rule.OCTAL_NUMBER, added(Entry(b"share/x", b"x", size=b"000000000001")))
bad("size of short digits", Rule.OCTAL_NUMBER, added(Entry(b"share/x", b"x", size=b"1\0".ljust(12, b"\0"))))
bad("size with an 8", Rule.OCTAL_NUMBER, added(Entry(b"share/x", size=b"00000000008\0")))
bad("size that is empty", Rule.OCTAL_NUMBER, added(Entry(b"share/x", size=bytes(12))))
bad("mode in blanks", Rule.OCTAL_NUMBER, changed("bin/node", mode=b"   755 \0"))
bad("mtime in base 256", Rule.OCTAL_NUMBER, changed("bin/node", mtime=b"\xff" * 12))
bad("old GNU magic", Rule.HEADER_FORM, changed("bin/node", magic=b"ustar  \0"))
bad("no magic", Rule.HEADER_FORM, changed("bin/node", magic=bytes(8)))
bad("a prefix", Rule.HEADER_FORM, changed("bin/node", prefix=b"bin"))
bad("a prefix that climbs", Rule.HEADER_FORM, changed("bin/node", prefix=b"../.."))
bad("device numbers of a file", Rule.HEADER_FORM, changed("bin/node", devices=b"0000001\x000000001\0"))
bad("bytes behind the prefix", Rule.HEADER_FORM, changed("bin/node", tail=b"x"))
bad("bytes behind a name's NUL", Rule.HEADER_FORM, added(Entry(b"share/x\0../../etc/passwd")))
bad("a link target of a file", Rule.HEADER_FORM, changed("bin/node", target=b"npm"))
bad(
    "bytes behind a target's NUL",
    Rule.HEADER_FORM,
    added(Entry(**{**vars(link("bin/l", "x")), "target": b"npm\0/etc"})),
)
bad("a directory without its slash", Rule.HEADER_FORM, added(Entry(b"share/d", type=b"5", mode=b"0000755\0")))
bad("an owner", Rule.OWNER, changed("bin/node", uid=b"0001750\0"))
bad("a group", Rule.OWNER, changed("bin/node", gid=b"0001750\0"))
bad("an owner's name", Rule.OWNER, changed("bin/node", user=b"root"))
bad("a group's name", Rule.OWNER, changed("bin/node", group=b"root"))
bad("setuid", Rule.MODE, changed("bin/node", mode=b"0004755\0"))
bad("setgid", Rule.MODE, changed("bin/node", mode=b"0002755\0"))
bad("sticky", Rule.MODE, changed("bin", mode=b"0001755\0"))
bad("writable by all", Rule.MODE, changed("bin/node", mode=b"0000777\0"))
bad("a directory nobody may enter", Rule.MODE, changed("bin", mode=b"0000644\0"))
bad("file type bits in the mode", Rule.MODE, changed("bin/node", mode=b"0100755\0"))
bad("a time of its own", Rule.ONE_MTIME, changed("bin/node", mtime=b"00000000000\0"))
bad("a directory with content", Rule.CONTENT_SIZE, changed("share/licenses", content=b"x"))
bad(
    "a symlink with content",
    Rule.CONTENT_SIZE,
    added(Entry(**{**vars(link("bin/l", "node")), "content": b"x"})),
)
bad("8 GiB that aren't there", Rule.UNPACKED_SIZE, added(Entry(b"share/x", b"x", size=b"77777777777\0")))
bad("1 MiB that isn't there", Rule.TAR_TRUNCATED, added(Entry(b"share/x", b"x", size=b"00004000000\0")))

# Kinds
for letter, what in (
    (b"1", "hard link"),
    (b"3", "character device"),
    (b"4", "block device"),
    (b"6", "FIFO"),
    (b"7", "contiguous file"),
    (b"\0", "file of before 1988"),
    (b"g", "global extended header"),
    (b"L", "GNU long name"),
    (b"K", "GNU long target"),
    (b"S", "GNU sparse file"),
    (b"D", "GNU dump"),
    (b"M", "GNU volume"),
    (b"V", "GNU label"),
    (b"X", "Solaris extended header"),
    (b"Z", "unknown type"),
    (b"\xff", "type beyond ASCII"),
):
    bad(
        f"a {what}",
        Rule.MEMBER_KIND,
        added(Entry(b"share/x", type=letter, target=b"bin/node"[: letter == b"1" and 8])),
    )
bad(
    "a hard link through a symlink",
    Rule.MEMBER_KIND,
    added(link("share/l", "../bin"), Entry(b"share/h", type=b"1", target=b"share/l/node")),
)

# Extended headers
LONG = "share/" + "n" * 120
bad("a size record", Rule.EXTENDED_HEADER, with_records(record(b"size", b"1000")))
bad("a linkpath for a file", Rule.EXTENDED_HEADER, with_records(record(b"linkpath", b"x" * 120)))
bad("a vendor's record", Rule.EXTENDED_HEADER, with_records(record(b"SCHILY.xattr.user.x", b"1")))
bad("a sparse record", Rule.EXTENDED_HEADER, with_records(record(b"GNU.sparse.name", b"../../x")))
bad("an mtime record", Rule.EXTENDED_HEADER, with_records(record(b"mtime", b"1.5")))
bad("a path that needs no record", Rule.EXTENDED_HEADER, with_records(record(b"path", b"share/x")))
bad("a path that the field belies", Rule.HEADER_FORM, with_records(record(b"path", LONG.encode())))
bad("two paths", Rule.EXTENDED_HEADER, with_records(record(b"path", LONG.encode()) * 2))
bad(
    "a path and a size",
    Rule.EXTENDED_HEADER,
    with_records(record(b"path", LONG.encode()) + record(b"size", b"1"), Entry(LONG.encode()[:100])),
)
bad(
    "records out of order",
    Rule.EXTENDED_HEADER,
    with_records(
        record(b"linkpath", b"t" * 120) + record(b"path", LONG.encode()),
        Entry(LONG.encode()[:100], type=b"2", mode=b"0000777\0", target=b"t" * 100),
    ),
)
bad("a record of too great a length", Rule.EXTENDED_HEADER, with_records(b"99 path=x\n"))
bad("a record of too small a length", Rule.EXTENDED_HEADER, with_records(b"5 path=x\n"))
bad("a record of length 0", Rule.EXTENDED_HEADER, with_records(b"0 path=x\n"))
bad("a record with a leading zero", Rule.EXTENDED_HEADER, with_records(b"010 path=x\n"))
bad("a record without a newline", Rule.EXTENDED_HEADER, with_records(b"10 path=xx"))
bad("a record without an equals sign", Rule.EXTENDED_HEADER, with_records(b"9 pathxx\n"))
bad("a record of an endless length", Rule.EXTENDED_HEADER, with_records(b"9" * 400 + b" path=x\n"))
bad("an extended header without records", Rule.EXTENDED_HEADER, with_records(b""))
bad("an extended header of 1 MiB", Rule.EXTENDED_HEADER, with_records(record(b"path", b"n" * (1 << 20))))
bad(
    "an extended header behind another",
    Rule.EXTENDED_HEADER,
    with_records(record(b"path", LONG.encode()), Entry(b"share/x", type=b"x", mode=b"0000000\0")),
)
bad(
    "an extended header at the end",
    Rule.EXTENDED_HEADER,
    lambda: gzip(
        small_bundle().tar()[:CONTENTS_END] + extended(record(b"path", LONG.encode())) + bytes(5120)
    ),
)
bad(
    "an extended header's padding",
    Rule.EXTENDED_HEADER,
    with_records(record(b"path", LONG.encode()), padding=b"\1" * (512 - 6 - 126 - 4)),
)
bad(
    "an extended header of another name",
    Rule.HEADER_FORM,
    with_records(record(b"path", LONG.encode()), name=b"PaxHeaders/x"),
)
bad(
    "an extended header with a mode",
    Rule.HEADER_FORM,
    with_records(record(b"path", LONG.encode()), mode=b"0000644\0"),
)
bad(
    "an extended header with an owner",
    Rule.OWNER,
    with_records(record(b"path", LONG.encode()), uid=b"0001750\0"),
)
bad(
    "a path that isn't UTF-8",
    Rule.NAME_ENCODING,
    with_records(record(b"path", b"share/\xff\xfe"), Entry(b"share/??")),
)
bad(
    "a directory's path without slash",
    Rule.EXTENDED_HEADER,
    with_records(record(b"path", LONG.encode()), Entry(LONG.encode()[:100], type=b"5", mode=b"0000755\0")),
)
bad(
    "a NUL in an extended path",
    Rule.NAME_CHARACTERS,
    with_records(record(b"path", LONG.encode() + b"\0x"), Entry(LONG.encode()[:100])),
)
bad(
    "an extended path that climbs",
    Rule.PLAIN_NAME,
    with_records(record(b"path", b"share/../" + b"n" * 120), Entry(b"share/../" + b"n" * 91)),
)
bad(
    "an absolute extended path",
    Rule.RELATIVE_NAME,
    with_records(record(b"path", b"/" + b"n" * 120), Entry(b"/" + b"n" * 99)),
)


def long_name(name: str, kind: bytes = b"0", mode: bytes = b"0000644\0") -> Entry:
    """A file or directory behind the extended header that its name needs."""
    raw = name.encode()
    return Entry(
        name.encode("ascii", "replace")[:100], type=kind, mode=mode, before=extended(record(b"path", raw))
    )


def deep(levels: int) -> list[Entry]:
    """Directories d, d/d, ... as deep as said."""
    names = ["/".join("d" * depth) for depth in range(1, levels + 1)]
    return [folder(name) if len(name) < 100 else long_name(f"{name}/", b"5", b"0000755\0") for name in names]


# Names
bad("an absolute name", Rule.RELATIVE_NAME, added(file("/etc/passwd")))
bad("an absolute directory", Rule.RELATIVE_NAME, added(folder("/etc")))
bad("two slashes first", Rule.RELATIVE_NAME, added(file("//etc/passwd")))
bad("a step up", Rule.PLAIN_NAME, added(file("../x")))
bad("a step up inside", Rule.PLAIN_NAME, added(file("share/../x")))
bad("a step up at the end", Rule.PLAIN_NAME, added(file("share/..")))
bad("many steps up", Rule.PLAIN_NAME, added(file("share/../../../../etc/passwd")))
bad("a directory that is a step up", Rule.PLAIN_NAME, added(folder("share/..")))
bad("a dot", Rule.PLAIN_NAME, added(folder(".")))
bad("a dot first", Rule.PLAIN_NAME, added(file("./share/x")))
bad("a dot inside", Rule.PLAIN_NAME, added(file("share/./x")))
bad("an empty component", Rule.PLAIN_NAME, added(file("share//x")))
bad("a file with a slash at its end", Rule.PLAIN_NAME, added(file("share/x/")))
bad("a directory with two slashes", Rule.PLAIN_NAME, added(folder("share/x/")))
bad("an empty name", Rule.PLAIN_NAME, added(file("")))
bad("a backslash", Rule.NAME_CHARACTERS, added(file("share\\x")))
bad("a Windows climb", Rule.NAME_CHARACTERS, added(file("..\\..\\x")))
bad("a newline", Rule.NAME_CHARACTERS, added(file("share/a\nb")))
bad("an escape sequence", Rule.NAME_CHARACTERS, added(file("share/\x1b[31mred")))
bad("a delete character", Rule.NAME_CHARACTERS, added(file("share/\x7f")))
bad("a control character of Latin 1", Rule.NAME_CHARACTERS, added(long_name("share/\x85")))
bad("a bidirectional override", Rule.NAME_CHARACTERS, added(long_name("share/\u202etxt.exe")))
bad("a line separator", Rule.NAME_CHARACTERS, added(long_name("share/\u2028")))
bad("a non-ASCII name in its field", Rule.NAME_ENCODING, added(Entry("share/ü".encode())))
bad("Latin 1", Rule.NAME_ENCODING, added(Entry(b"share/\xfc")))
bad("a component of 256 bytes", Rule.NAME_LENGTH, added(long_name("share/" + "n" * 256)))
bad("a name of 1025 bytes", Rule.NAME_LENGTH, added(long_name("/".join(["share", *["n" * 254] * 4]))))
bad("65 levels", Rule.LEVELS, added(*deep(65)))
bad("200 levels", Rule.LEVELS, added(*deep(200)))

# Members together
bad("a file twice", Rule.DUPLICATE, added(file("bin/node", b"other", executable=True)))
bad("a directory twice", Rule.DUPLICATE, added(folder("bin")))
bad("the manifest twice", Rule.DUPLICATE, added(file(bundles.MANIFEST, b"{}")))
bad("a file in the place of a directory", Rule.DUPLICATE, added(file("bin")))
bad("a directory in the place of a file", Rule.DUPLICATE, added(folder("bin/node")))
bad("a symlink in the place of a directory", Rule.DUPLICATE, added(link("bin", "share")))
bad(
    "a directory in the place of a symlink", Rule.DUPLICATE, added(link("l", "bin"), folder("l"), file("l/x"))
)
bad("a name that differs in case", Rule.DUPLICATE, added(file("bin/NODE")))
bad("a directory that differs in case", Rule.DUPLICATE, added(folder("Bin")))
bad("names equal without case", Rule.DUPLICATE, added(long_name("share/straße"), file("share/STRASSE")))
bad("names equal when normalised", Rule.DUPLICATE, added(long_name("share/é"), long_name("share/e\u0301")))
bad("a member below a symlink", Rule.PARENT_FOLDER, added(link("l", "bin"), file("l/x")))
bad("a member below a symlink out", Rule.PARENT_FOLDER, added(link("l", "../.."), file("l/x")))
bad("a directory below a symlink", Rule.PARENT_FOLDER, added(link("l", "bin"), folder("l/d")))
bad("a member below a file", Rule.PARENT_FOLDER, added(file("share/x"), file("share/x/y")))
bad("a member without its directory", Rule.PARENT_FOLDER, added(file("nowhere/x")))
bad("a directory behind its content", Rule.PARENT_FOLDER, added(file("late/x"), folder("late")))
bad("a directory of another case", Rule.PARENT_FOLDER, added(file("BIN/x")))

# Symlinks
bad("an absolute target", Rule.LINK_TARGET, added(link("l", "/etc/passwd")))
bad("an empty target", Rule.LINK_TARGET, added(link("l", "")))
bad("a target with an empty component", Rule.LINK_TARGET, added(link("l", "bin//node")))
bad("a target with a slash at its end", Rule.LINK_TARGET, added(link("l", "bin/")))
bad("a target with a backslash", Rule.NAME_CHARACTERS, added(link("l", "..\\x")))
bad("a target with a newline", Rule.NAME_CHARACTERS, added(link("l", "a\nb")))
bad("a target outside", Rule.LINK_INSIDE, added(link("l", "..")))
bad("a target far outside", Rule.LINK_INSIDE, added(link("bin/l", "../../../../etc/passwd")))
bad("a target outside and back", Rule.LINK_INSIDE, added(link("bin/l", "../../node24/bin/node")))
bad("a target outside by way of nothing", Rule.LINK_INSIDE, added(link("l", "nowhere/../../x")))
bad(
    "a target outside through a symlink",
    Rule.LINK_INSIDE,
    added(link("bin/up", ".."), link("l", "bin/up/../x")),
)
bad(
    "a target outside through three symlinks",
    Rule.LINK_INSIDE,
    added(
        folder("a"), folder("a/b"), link("a/b/up", ".."), link("top", "a/b/up/.."), link("out", "top/../x")
    ),
)
bad("a target outside by a later symlink", Rule.LINK_INSIDE, added(link("l", "z/../x"), link("z", ".")))
bad("a symlink to itself", Rule.LINK_LOOP, added(link("l", "l")))
bad("a symlink below itself", Rule.LINK_LOOP, added(link("l", "l/x")))
bad("two symlinks to each other", Rule.LINK_LOOP, added(link("k", "l"), link("l", "k")))
bad("a loop of three", Rule.LINK_LOOP, added(link("j", "k"), link("k", "bin/../l"), link("l", "./j")))
bad("a symlink to its own folder's name", Rule.LINK_LOOP, added(link("bin/l", "../bin/l")))
bad(
    "a chain of 41",
    Rule.LINK_LOOP,
    added(link("l0", "bin"), *(link(f"l{i}", f"l{i - 1}") for i in range(1, 41))),
)

# What is promised
bad("another member first", Rule.MANIFEST_FIRST, lambda: bundles.Bundle(small_bundle().members[1:]).data())
bad(
    "the manifest later",
    Rule.MANIFEST_FIRST,
    lambda: bundles.Bundle([folder("aaa"), *small_bundle().members]).data(),
)
bad(
    "a manifest in a folder",
    Rule.MANIFEST_FIRST,
    changed(bundles.MANIFEST, name=b"./" + bundles.MANIFEST.encode()),
)
bad(
    "a manifest that is a symlink",
    Rule.MANIFEST_FIRST,
    lambda: small_bundle().replace(bundles.MANIFEST, link(bundles.MANIFEST, "bin/node")).data(),
)
bad("a manifest that isn't JSON", Rule.MANIFEST, raw_manifest(b"runtime: node24"))
bad("an empty manifest", Rule.MANIFEST, raw_manifest(b""))
bad("a manifest of 1 MiB", Rule.MANIFEST, raw_manifest(b" " * (1 << 20)))
bad("a manifest with a key twice", Rule.MANIFEST, raw_manifest(b'{"launcher": "bin/a", "launcher": "bin/b"}'))
bad("a manifest of another schema", Rule.MANIFEST, manifested(schema_version="agentcompass.capsule.v2"))
bad("a manifest with a harness", Rule.MANIFEST, manifested(harness={"id": "claude-code"}))
bad("a manifest with another install root", Rule.MANIFEST, manifested(install_root="/tmp/elsewhere"))
bad("a launcher outside", Rule.MANIFEST, manifested(launcher="../bin/capsule-exec"))
bad("a launcher that isn't there", Rule.LAUNCHER, lambda: small_bundle().replace("bin/capsule-exec").data())
bad("a launcher that is a directory", Rule.LAUNCHER, manifested(launcher="bin"))
bad("a launcher that isn't executable", Rule.LAUNCHER, changed("bin/capsule-exec", mode=b"0000644\0"))
bad("a tool that isn't there", Rule.TOOLS, lambda: small_bundle().replace("bin/npx").data())
bad("a tool that isn't executable", Rule.TOOLS, changed("bin/npm", mode=b"0000644\0"))
bad(
    "a tool that points at nothing",
    Rule.TOOLS,
    lambda: small_bundle().replace("bin/npx", link("bin/npx", "gone")).data(),
)
bad(
    "a tool that points at a directory",
    Rule.TOOLS,
    lambda: small_bundle().replace("bin/npx", link("bin/npx", "../share")).data(),
)
bad("no glibc loader", Rule.LOADERS, lambda: small_bundle().replace(bundles.LOADERS["x86_64"][0]).data())
bad("no musl loader", Rule.LOADERS, lambda: small_bundle().replace(bundles.LOADERS["x86_64"][1]).data())
bad("a loader that isn't executable", Rule.LOADERS, changed(bundles.LOADERS["x86_64"][0], mode=b"0000644\0"))
bad("another architecture's loaders", Rule.LOADERS, lambda: small_bundle(architecture="aarch64").data())
bad("no licences", Rule.LICENSES, lambda: small_bundle().replace("share/licenses/node.txt").data())
bad("no SBOM", Rule.SBOM, lambda: small_bundle().replace("share/sbom.cdx.json").data())
bad("an SBOM that isn't JSON", Rule.SBOM, changed("share/sbom.cdx.json", content=b"<bom/>"))
bad("an SBOM that is a list", Rule.SBOM, lambda: small_bundle(sbom=[]).data())
bad("an SBOM nested without end", Rule.SBOM, changed("share/sbom.cdx.json", content=b"[" * 200_000))
bad(
    "an SBOM that is a directory",
    Rule.SBOM,
    lambda: small_bundle().replace("share/sbom.cdx.json", folder("share/sbom.cdx.json")).data(),
)


def test_the_table_holds_at_least_sixty_bad_bundles() -> None:
    assert len(CASES) >= 60


def test_every_rule_is_broken_by_a_bundle_here() -> None:
    """The count of members is the exception: see `test_a_bound_on_members`."""
    assert {rule for rule, _ in CASES.values()} == set(Rule) - {Rule.MEMBER_COUNT}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_bundle_is_refused_by_its_rule(name: str, tmp_path: Path) -> None:
    rule, make = CASES[name]
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(make())
    with pytest.raises(BundleError) as caught:
        check_bundle(bundle)
    assert caught.value.rule is rule, str(caught.value)
    assert f"'{rule.value}'" in caught.value.message
    assert caught.value.message.startswith(str(bundle))
    assert caught.value.exit_code == 5
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    if caught.value.member is not None:
        assert f"Member '{shown(caught.value.member)}' breaks" in caught.value.message

    with pytest.raises(BundleError):
        extract_bundle(bundle, tmp_path / "root")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.tar.gz"]


def test_a_bound_on_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.runtime.tree.MAX_MEMBERS", 20)
    members = [file(f"share/{number}") for number in range(20)]
    with pytest.raises(BundleError, match="member-count") as caught:
        list(read_members(io.BytesIO(small_bundle().add(*members).data())))
    assert caught.value.member == "share/4"
    assert limits.MAX_MEMBERS == 200_000


def test_symlinks_can_not_take_endless_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.runtime.tree.MAX_LINK_STEPS", 1000)
    links = [link(f"l{number}", "/".join(["bin/.."] * 12)) for number in range(200)]
    with pytest.raises(BundleError, match="link-loop"):
        list(read_members(io.BytesIO(small_bundle().add(*links).data())))


def test_a_bound_on_unpacked_bytes_counts_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.runtime.gzipstream.MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(BundleError, match="unpacked-size"):
        list(read_members(io.BytesIO(small_bundle().data())))


def test_a_bomb_is_refused_before_its_bytes_are_taken() -> None:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = bundles.tar([*small_bundle().members, file("share/zeros", bytes(48 << 20))])
    packed_bytes = PLAIN_HEADER + deflate.compress(data) + deflate.flush()
    reader = BundleReader(io.BytesIO(packed_bytes))
    taken: list[int] = []

    def take() -> None:
        for _, content in reader:
            while piece := content.read(1 << 20):
                taken.append(len(piece))

    with pytest.raises(BundleError, match="expansion-ratio"):
        take()
    assert sum(taken) < 2 * limits.EXPANSION_GRACE_BYTES


def test_the_member_and_its_neighbour_are_named() -> None:
    with pytest.raises(BundleError, match=r"Member 'bin/node' breaks the rule 'mode'.*4755"):
        list(read_members(io.BytesIO(changed("bin/node", mode=b"0004755\0")())))
    with pytest.raises(BundleError, match=r"'share/l' .*'link-inside'"):
        list(read_members(io.BytesIO(added(link("share/l", "../.."))())))


def test_the_reason_in_a_manifest_reaches_the_message() -> None:
    document = json.dumps({**manifest(), "tools": {}}).encode()
    with pytest.raises(BundleError, match="seal-tree"):
        list(read_members(io.BytesIO(raw_manifest(document)())))
