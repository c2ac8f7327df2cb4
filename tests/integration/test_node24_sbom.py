"""What real bundles say of themselves: components, files, licences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.sbom import check_sbom
from tests import images
from tests.integration.capsules import LIBCS, NPM, Capsules, cli_json, install_root, printed_json, run_in
from tests.integration.sboms import LICENCES, check_true

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.network]

MODULES = "runtime/node/lib/node_modules"
CONTAINED = {"openssl": "openssl", "v8": "v8", "libuv": "uv", "zlib": "zlib"}
"""What Node.js contains, and what it calls that itself."""
OWN_ABI = {"glibc": {"libc6", "libstdc++6", "libgcc-s1"}, "musl": {"musl", "musl-cxx"}}


def document_of(tree: Path) -> Any:
    return json.loads((tree / "share/sbom.cdx.json").read_bytes())


@pytest.mark.parametrize("libc", LIBCS)
def test_each_file_of_a_bundle_is_listed_once_with_its_digest(capsules: Capsules, libc: str) -> None:
    tree = capsules.tree(libc)
    check_true((tree / "share/sbom.cdx.json").read_bytes(), tree)


@pytest.mark.parametrize("libc", LIBCS)
def test_the_sbom_beside_a_bundle_has_its_digest(capsules: Capsules, libc: str) -> None:
    built = capsules.built("podman", libc)
    beside = built.path.with_name(f"{built.path.name}.cdx.json").read_bytes()
    check_sbom(beside)
    document, inner = json.loads(beside), document_of(capsules.tree(libc))
    assert document["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": built.sha256}]
    assert document["components"] == inner["components"]
    assert document["serialNumber"] != inner["serialNumber"]


def is_package(folder: Path) -> bool:
    above = folder.parent.parent if folder.parent.name.startswith("@") else folder.parent
    return above.name == "node_modules"


def test_every_package_that_npm_brings_is_listed(capsules: Capsules) -> None:
    tree = capsules.tree("glibc")
    installed = {
        (description["name"], description["version"])
        for path in (tree / MODULES).rglob("package.json")
        if is_package(path.parent)
        for description in [json.loads(path.read_bytes())]
    }
    assert len(installed) > 100
    assert ("npm", NPM) in installed
    listed = {
        (entry["name"], entry["version"])
        for entry in document_of(tree)["components"]
        if entry.get("purl", "").startswith("pkg:npm/")
    }
    assert listed == installed


@pytest.mark.parametrize("libc", LIBCS)
def test_what_node_needs_is_told_by_its_own_file(capsules: Capsules, libc: str) -> None:
    entries = document_of(capsules.tree(libc))["dependencies"]
    needs = {entry["ref"]: set(entry.get("dependsOn", [])) for entry in entries}
    assert needs["node"] == OWN_ABI[libc] | {f"node/{name}" for name in CONTAINED}
    assert needs["libstdc++6"] == {"libc6", "libgcc-s1"}
    assert needs["musl-cxx"] == {"musl"}
    assert "node" in needs["npm"]
    (root,) = (ref for ref in needs if ref.startswith("capsule:"))
    reached, waiting = set(), [root]
    while waiting:
        reached.add(ref := waiting.pop())
        waiting += needs[ref] - reached
    assert reached == set(needs)


def test_what_node_contains_is_what_it_says_itself(capsules: Capsules, podman_engine: Engine) -> None:
    """The headers tell what the program was linked with."""
    capsule = capsules.built("podman", "glibc")
    tree = capsules.tree("glibc")
    image = images.image(podman_engine, "bare")
    node = f"{capsule.root}/bin/node"
    outcome = run_in(
        podman_engine,
        image,
        node,
        "-p",
        "JSON.stringify(process.versions)",
        binds=((str(tree), capsule.root, "ro"),),
    )
    said = printed_json(outcome)
    (entry,) = (entry for entry in document_of(tree)["components"] if entry["name"] == "node")
    listed = {item["name"]: item["version"] for item in entry["components"] if item["type"] != "file"}
    assert listed.keys() == CONTAINED.keys()
    for name, own in CONTAINED.items():
        # Behind the version there can be a mark of its patches (V8), or of its commit (zlib).
        assert f"{said[own]}-".startswith(f"{listed[name]}-")


@pytest.mark.parametrize("libc", LIBCS)
def test_each_component_has_its_texts_and_copyleft_its_source(capsules: Capsules, libc: str) -> None:
    found = cli_json("inspect", capsules.built("podman", libc).path, "--licenses")["components"]
    entries = {(entry["name"], entry["version"]): entry for entry in found}
    assert all(entry["texts"] and entry["licenses"] for entry in found)
    copyleft = [entry for entry in found if "GPL" in " ".join(entry["licenses"])]
    assert {entry["name"] for entry in copyleft} == {
        *("libc6", "libstdc++6", "libgcc-s1", "musl-cxx", "bash-static", "patchelf")
    }
    assert all(entry["sources"] for entry in copyleft)
    # Upstream publishes these without a text.
    lacking = {"@npmcli/agent", "@sigstore/verify", "spdx-exceptions", "spdx-license-ids"}
    assert {entry["name"] for entry in found if entry["texts_are"] != "own"} == lacking
    tree = capsules.tree(libc)
    assert "V8, located at deps/v8" in (tree / LICENCES / "node/LICENSE").read_text()
    for name in ("libc6", "bash-static"):
        assert "LGPL-2.1" in {path.name for path in (tree / LICENCES / name).iterdir()}
    assert "GPL-3" in {path.name for path in (tree / LICENCES / "musl-cxx").iterdir()}
    notice = (tree / LICENCES / "NOTICE.txt").read_text()
    assert all(f"\n{name} {version}" in notice for name, version in entries)
    assert install_root(libc) not in notice
