"""Bundles with a header that is not the one spelling, or of a kind that no member has."""

from __future__ import annotations

from capsule_build.runtime.rules import Rule
from tests.bundles import Entry, extended, gzip, link, record, small_bundle

from .making import CONTENTS_END, added, bad, changed, with_records

LONG = "share/" + "n" * 120

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
