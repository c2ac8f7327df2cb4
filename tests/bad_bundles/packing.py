"""Bundles whose gzip, or the frame of whose tar, is not the one spelling."""

from __future__ import annotations

import struct

from capsule_build.runtime.rules import Rule
from tests import bundles
from tests.bundles import Entry, file, gzip, small_bundle

from .making import CONTENTS_END, added, bad, cut, edited, packed

PLAIN_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"

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
