"""The SBOM beside a bundle, and the checks that an SBOM has to pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime.errors import ContractError
from capsule_build.sbom import check_files, check_sbom, outer_sbom

if TYPE_CHECKING:
    from collections.abc import Callable

DIGEST = "ab" * 32
INNER: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "serialNumber": "urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79",
    "version": 1,
    "metadata": {"component": {"type": "platform", "name": "tiny", "version": "1", "bom-ref": "root"}},
    "components": [
        {
            "type": "library",
            "name": "a",
            "version": "1",
            "bom-ref": "a",
            "purl": "pkg:npm/%40scope/a@1",
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        },
        {
            "type": "library",
            "name": "b",
            "version": "1",
            "bom-ref": "b",
            "components": [{"type": "file", "name": "bin/b", "bom-ref": "b/file"}],
        },
    ],
    "dependencies": [{"ref": "root", "dependsOn": ["a", "b"]}, {"ref": "b", "dependsOn": ["a"]}],
    "compositions": [{"aggregate": "complete", "assemblies": ["root"]}],
}


def packed(document: object) -> bytes:
    return json.dumps(document).encode()


def outer(inner: bytes, **changes: Any) -> bytes:
    return outer_sbom(inner, **{"filename": "tiny.tar.gz", "sha256": DIGEST, "size": 42, **changes})


def test_the_outer_one_says_the_bundles_digest_and_names_the_inner_one() -> None:
    data = outer(packed(INNER))
    check_sbom(data)
    document = json.loads(data)
    root = document["metadata"]["component"]
    assert root["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    assert {entry["name"]: entry["value"] for entry in root["properties"]} == {
        "capsule:filename": "tiny.tar.gz",
        "capsule:size": "42",
    }
    (reference,) = root["externalReferences"]
    assert reference["url"] == "urn:cdx:3e671687-395b-41f5-a30f-a58921a69b79/1"
    assert document["components"] == INNER["components"]


def test_the_outer_one_is_another_document_and_always_the_same() -> None:
    first = outer(packed(INNER))
    again = outer(packed(dict(reversed(INNER.items()))))
    assert first == again
    serials = {json.loads(data)["serialNumber"] for data in (first, outer(packed(INNER), sha256="cd" * 32))}
    assert len(serials | {INNER["serialNumber"]}) == 3


@pytest.mark.parametrize(
    "inner",
    [
        b"",
        b"[]",
        b"{}",
        b'{"bomFormat": "CycloneDX", "specVersion": "1.6"}',
        packed({**INNER, "metadata": 3}),
    ],
)
def test_what_is_no_sbom_has_no_outer_one(inner: bytes) -> None:
    with pytest.raises(ContractError, match="The SBOM"):
        outer(inner)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(packed(INNER))
    change(document)
    return packed(document)


def test_a_good_one_passes() -> None:
    check_sbom(packed(INNER))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["components"][0].update({"bom-ref": "b"}), "'b' twice"),
        (lambda d: d["components"][1]["components"][0].update({"bom-ref": "a"}), "'a' twice"),
        (lambda d: d["components"][0].update({"bom-ref": "root"}), "'root' twice"),
        (lambda d: d["dependencies"].append({"ref": "none"}), "dependency of 'none'"),
        (lambda d: d["dependencies"][1]["dependsOn"].append("none"), "dependency of 'none'"),
        (lambda d: d["dependencies"].append({"ref": "b"}), "of 'b' twice"),
        (lambda d: d["compositions"][0]["assemblies"].append("none"), "composition of 'none'"),
        (lambda d: d["components"][0].update(purl="npm/a@1"), "no valid package URL"),
        (lambda d: d["components"][0].update(purl="pkg:npm/@scope/a@1"), "other than pkg:npm/%40scope/a@1"),
        (lambda d: d["components"][0].update(licenses=[{"expression": "MIT OR"}]), "no SPDX expression"),
        (
            lambda d: d["components"][0].update(licenses=[{"expression": "SEE LICENSE IN x"}]),
            "no SPDX expression",
        ),
        (lambda d: d["components"][0].update(licenses=[{"license": {"id": "NO-SUCH"}}]), "schema"),
        (lambda d: d["components"][0].update({"mime_type": "text/plain"}), "schema"),
        (lambda d: d.update(components=[3]), "schema"),
        (lambda d: d.update(specVersion="1.5"), "CycloneDX 1.6"),
    ],
)
def test_a_bad_one_is_refused_for_its_own_reason(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(ContractError, match=said):
        check_sbom(changed(change))


def listing(*names: str) -> bytes:
    hashes = [{"alg": "SHA-256", "content": DIGEST}]
    inner = [{"type": "file", "name": name, "hashes": hashes} for name in names]
    return packed({**INNER, "components": [{**INNER["components"][0], "components": inner}]})


def test_files_are_held_against_a_bundles() -> None:
    check_files(listing("bin/a", "bin/b"), {"bin/a": DIGEST, "bin/b": DIGEST})


@pytest.mark.parametrize(
    ("names", "digests", "said"),
    [
        (("bin/a",), {"bin/a": DIGEST, "bin/b": DIGEST}, "doesn't list the file 'bin/b'"),
        (("bin/a", "bin/a"), {"bin/a": DIGEST}, "lists the file 'bin/a' twice"),
        (("bin/a",), {"bin/a": "cd" * 32}, "'bin/a' with another digest"),
        (("bin/a", "bin/b"), {"bin/a": DIGEST}, "'bin/b', which isn't in the bundle"),
    ],
)
def test_a_list_of_files_that_is_not_true_is_refused(
    names: tuple[str, ...], digests: dict[str, str], said: str
) -> None:
    with pytest.raises(ContractError, match=said):
        check_files(listing(*names), digests)
