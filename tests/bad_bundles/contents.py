"""Bundles with members that may not be, alone or together, and without what a bundle promises."""

from __future__ import annotations

from capsule_build.runtime.rules import Rule
from tests import bundles
from tests.bundles import Entry, extended, file, folder, link, record, small_bundle

from .making import added, bad, changed, manifested, raw_manifest


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
