"""Small bundles for tests: a valid one, and whatever else can be written as blocks of a tar.

The writer here knows nothing of the reader under test: it packs a header's fields as it is told.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass, field, replace

MTIME = 1_700_000_000
MANIFEST = "agentcompass-capsule.json"
BLOCK = 512
RECORD = 10240

LOADERS = {
    "x86_64": ("abi/glibc/ld-linux-x86-64.so.2", "abi/musl/ld-musl-x86_64.so.1"),
    "aarch64": ("abi/glibc/ld-linux-aarch64.so.1", "abi/musl/ld-musl-aarch64.so.1"),
}


@dataclass(frozen=True)
class Entry:
    """One member as raw fields. What is `None` is made from the rest, as a right header has it."""

    name: bytes
    content: bytes = b""
    type: bytes = b"0"
    mode: bytes = b"0000644\0"
    uid: bytes = b"0000000\0"
    gid: bytes = b"0000000\0"
    size: bytes | None = None
    mtime: bytes = b"%011o\0" % MTIME
    checksum: bytes | None = None
    target: bytes = b""
    magic: bytes = b"ustar\x0000"
    user: bytes = b""
    group: bytes = b""
    devices: bytes = b""
    prefix: bytes = b""
    tail: bytes = b""
    padding: bytes | None = None
    before: bytes = b""
    """Raw blocks that stand before the header, such as an extended header's."""

    def blocks(self) -> bytes:
        size = b"%011o\0" % len(self.content) if self.size is None else self.size
        first = self.name.ljust(100, b"\0") + self.mode + self.uid + self.gid + size + self.mtime
        last = (
            self.type
            + self.target.ljust(100, b"\0")
            + self.magic
            + self.user.ljust(32, b"\0")
            + self.group.ljust(32, b"\0")
            + self.devices.ljust(16, b"\0")
            + self.prefix.ljust(155, b"\0")
            + self.tail.ljust(12, b"\0")
        )
        checksum = self.checksum or b"%06o\0 " % (sum(first) + 8 * 32 + sum(last))
        header = first + checksum + last
        assert len(header) == BLOCK, f"{self.name!r}: the header has {len(header)} bytes"
        padding = bytes(-len(self.content) % BLOCK) if self.padding is None else self.padding
        return self.before + header + self.content + padding


def file(name: str, content: bytes = b"", *, executable: bool = False) -> Entry:
    return Entry(name.encode(), content, mode=b"0000755\0" if executable else b"0000644\0")


def folder(name: str) -> Entry:
    return Entry(f"{name}/".encode(), type=b"5", mode=b"0000755\0")


def link(name: str, target: str) -> Entry:
    return Entry(name.encode(), type=b"2", mode=b"0000777\0", target=target.encode())


def record(key: bytes, value: bytes) -> bytes:
    """One record of an extended header: its length (itself included), a blank, key=value, a newline."""
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest)
    while length != len(rest) + len(str(length)):
        length = len(rest) + len(str(length))
    return str(length).encode() + rest


def extended(records: bytes, **fields: bytes) -> bytes:
    """The blocks of an extended header as Python's tarfile writes them."""
    header = Entry(b"././@PaxHeader", records, type=b"x", mode=b"0000000\0", mtime=b"00000000000\0", user=b"")
    return replace(header, **fields).blocks()


def manifest(**changes: object) -> dict[str, object]:
    """The manifest of the small bundle."""
    document: dict[str, object] = {
        "schema_version": "agentcompass.capsule.v1",
        "runtime": {"id": "node24", "version": "24.19.0"},
        "platform": {"os": "linux", "architecture": "x86_64", "libc": "musl"},
        "install_root": "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64-musl",
        "launcher": "bin/capsule-exec",
        "tools": {"node": "bin/node", "npm": "bin/npm", "npx": "bin/npx", "seal-tree": "bin/seal-tree"},
    }
    return {**document, **changes}


SBOM: dict[str, object] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "serialNumber": "urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79",
    "version": 1,
    "metadata": {
        "component": {"type": "platform", "name": "node24", "version": "24.19.0", "bom-ref": "capsule"}
    },
    "components": [
        {
            "type": "platform",
            "name": "node",
            "version": "24.19.0",
            "bom-ref": "node",
            "licenses": [{"license": {"id": "MIT"}}],
        },
        {
            "type": "library",
            "name": "musl",
            "version": "1.2.5",
            "bom-ref": "musl",
            "licenses": [{"expression": "MIT"}],
        },
    ],
    "dependencies": [{"ref": "capsule", "dependsOn": ["musl", "node"]}, {"ref": "musl"}, {"ref": "node"}],
}


@dataclass
class Bundle:
    """A bundle's members in order; change the list, then take its bytes."""

    members: list[Entry] = field(default_factory=list)

    def index(self, name: str) -> int:
        stored = {name.encode(), f"{name}/".encode()}
        return next(i for i, member in enumerate(self.members) if member.name in stored)

    def replace(self, name: str, *entries: Entry) -> Bundle:
        """Put others in a member's place; none: leave it out."""
        place = self.index(name)
        self.members[place : place + 1] = entries
        return self

    def change(self, member: str, /, **fields: bytes | None) -> Bundle:
        """Change raw fields of a member."""
        place = self.index(member)
        self.members[place] = replace(self.members[place], **fields)  # type: ignore[arg-type]  # as above
        return self

    def add(self, *entries: Entry) -> Bundle:
        self.members.extend(entries)
        return self

    def listed(self) -> Bundle:
        """Put an SBOM in the place of the one that is there: one that lists all files with their digests."""
        files = [
            {
                "type": "file",
                "name": member.name.decode(),
                "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(member.content).hexdigest()}],
            }
            for member in self.members
            if member.type == b"0" and member.name != b"share/sbom.cdx.json"
        ]
        components = SBOM["components"]
        assert isinstance(components, list)
        document = {**SBOM, "components": [{**components[0], "components": files}, *components[1:]]}
        return self.replace("share/sbom.cdx.json", file("share/sbom.cdx.json", json.dumps(document).encode()))

    def tar(self) -> bytes:
        return tar(self.members)

    def data(self) -> bytes:
        return gzip(self.tar())


def tar(members: list[Entry]) -> bytes:
    blocks = b"".join(member.blocks() for member in members) + bytes(2 * BLOCK)
    return blocks + bytes(-len(blocks) % RECORD)


def gzip(
    data: bytes,
    *,
    header: bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
    level: int = 6,
    trailer: bytes | None = None,
) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    if trailer is None:
        trailer = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return header + body + trailer


def small_bundle(
    *, architecture: str = "x86_64", document: dict[str, object] | None = None, sbom: object = SBOM
) -> Bundle:
    """A bundle of about 1 KB that keeps the whole contract. Its programs are shell scripts.

    Args:
        architecture: The architecture whose loaders it carries.
        document: Another manifest; its launcher and tools below `bin` are there.
        sbom: Another SBOM.
    """
    document = manifest() if document is None else document
    glibc, musl = LOADERS[architecture]
    tools = document["tools"]
    assert isinstance(tools, dict)
    return Bundle(
        [
            file(MANIFEST, json.dumps(document, indent=2).encode() + b"\n"),
            folder("abi"),
            folder("abi/glibc"),
            file(glibc, b"glibc's loader", executable=True),
            folder("abi/musl"),
            file(musl, b"musl's loader", executable=True),
            folder("bin"),
            file("bin/capsule-exec", b"#!/bin/sh\n", executable=True),
            *(file(path, b"#!/bin/sh\n", executable=True) for path in sorted(set(tools.values()))),
            folder("share"),
            folder("share/licenses"),
            file("share/licenses/node.txt", b"Permission is hereby granted.\n"),
            file("share/sbom.cdx.json", json.dumps(sbom).encode()),
        ]
    )
