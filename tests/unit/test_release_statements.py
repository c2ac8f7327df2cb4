"""Statements and documents beside a bundle that must not be accepted, though signatures are there."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.builder import LOCAL_BUILDER
from capsule_build.release.outputs import Outputs
from capsule_build.release.signing import sbom_statement
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError
from tests.signable import write_release
from tests.signed import Shelf, edited, instance, policy, raw_statement, refused, shelf, sign, taken

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from capsule_build.release.policy import KeylessPolicy
    from tests.sigstore_instance import Instance

__all__ = ["instance", "policy", "shelf"]

BUILDER = {
    "invocation": None,
    "started": "2026-11-29T12:00:00Z",
    "finished": "2026-11-29T12:00:20Z",
    "capsule_build": "0.1.0",
    "python": "3.11.2",
    "zlib_ng": "1.1.0",
    "engine": {"name": "docker", "client": "7.1.0", "server": "20.10.24"},
}


def test_an_edited_statement(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)

    def change(document: dict[str, Any]) -> None:
        payload = base64.b64decode(document["dsseEnvelope"]["payload"])
        changed = payload.replace(b'"modified": false', b'"modified": true')
        assert changed != payload
        document["dsseEnvelope"]["payload"] = base64.b64encode(changed).decode()

    edited(outputs.provenance_signature, change)
    refused(outputs, policy, "DSSE: invalid signature")


def test_another_type_of_payload(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    edited(outputs.provenance_signature, lambda found: found["dsseEnvelope"].update(payloadType="text/plain"))
    refused(outputs, policy, "DSSE: invalid signature")


def test_another_type_of_payload_that_was_signed_as_such(
    instance: Instance,
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    monkeypatch.setattr("sigstore.dsse.Envelope._TYPE", "text/plain")
    outputs.provenance_signature.write_bytes(
        raw_statement(outputs.provenance.read_bytes(), instance, tmp_path)
    )
    refused(outputs, policy, "signs something of the type 'text/plain'")


@pytest.mark.parametrize("what", ["provenance", "sbom"])
def test_the_valid_statement_of_another_bundle(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, what: str
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    other = Outputs(shelf.signed("v1", b"another"))
    for name in (what, f"{what}_signature"):
        shutil.copy(getattr(other, name), getattr(outputs, name))
    refused(outputs, policy, "is about another file: its subject has SHA-256")


def test_a_signature_in_a_statements_place_and_the_reverse(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "one")
    shutil.copy(outputs.signature, outputs.provenance_signature)
    refused(outputs, policy, "signs a file, not a statement")
    outputs = taken(shelf.signed("v1"), tmp_path / "two")
    shutil.copy(outputs.provenance_signature, outputs.signature)
    refused(outputs, policy, "signs a statement, not a file")
    outputs = taken(shelf.signed("v1"), tmp_path / "three")
    shutil.copy(outputs.sbom_signature, outputs.provenance_signature)
    refused(outputs, policy, "has the predicate type 'https://cyclonedx.org/bom'")
    outputs = taken(shelf.signed("v1"), tmp_path / "four")
    shutil.copy(outputs.provenance_signature, outputs.sbom_signature)
    refused(outputs, policy, "has the predicate type 'https://slsa.dev/provenance/v1'")


def second_subject(document: dict[str, Any]) -> None:
    document["subject"].append({"name": "other.tar.gz", "digest": {"sha256": "0" * 64}})


def second_digest(document: dict[str, Any]) -> None:
    document["subject"][0]["digest"]["sha512"] = "0" * 128


def other_build_type(document: dict[str, Any]) -> None:
    document["predicate"]["buildDefinition"]["buildType"] = "https://example.org/other"


def other_predicate_type(document: dict[str, Any]) -> None:
    document["predicateType"] = "https://slsa.dev/provenance/v0.2"


def other_name(document: dict[str, Any]) -> None:
    document["subject"][0]["name"] = "other.tar.gz"


def other_version(document: dict[str, Any]) -> None:
    parameters = document["predicate"]["buildDefinition"]["internalParameters"]
    parameters["capsule"]["runtime"]["version"] = "24.18.0"


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        (second_subject, ContractError, "it has 2 subjects"),
        (second_digest, ContractError, "a SHA-256, and no other digest"),
        (other_build_type, SignatureError, "has the build type 'https://example.org/other'"),
        (other_predicate_type, SignatureError, "has the predicate type"),
        (other_name, SignatureError, "is about other.tar.gz, not about"),
        (other_version, SignatureError, "gives the version as '24.18.0'"),
    ],
)
def test_a_statement_that_was_signed_but_says_something_else(
    instance: Instance,
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    kind: type[CapsuleError],
    reason: str,
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    edited(outputs.provenance, change)
    outputs.provenance_signature.write_bytes(
        raw_statement(outputs.provenance.read_bytes(), instance, tmp_path)
    )
    refused(outputs, policy, reason, kind)


@pytest.mark.parametrize(
    ("what", "kind", "reason"),
    [
        ("digest", ContractError, "isn't the digest of"),
        ("provenance", SignatureError, "isn't the provenance that .* signs"),
        ("sbom", SignatureError, "isn't the SBOM that .* signs"),
    ],
)
def test_a_document_that_isnt_the_signed_one(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, what: str, kind: type[CapsuleError], reason: str
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    path: Path = getattr(outputs, what)
    path.write_bytes(path.read_bytes().replace(b"24.19.0", b"24.18.0").replace(b"  node24", b" *node24"))
    refused(outputs, policy, reason, kind)


@pytest.mark.parametrize(
    "what", ["digest", "sbom", "provenance", "signature", "provenance_signature", "sbom_signature"]
)
def test_a_part_that_is_missing(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, what: str) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    path: Path = getattr(outputs, what)
    path.unlink()
    refused(outputs, policy, f"{re.escape(path.name)} isn't there")


def test_a_bundle_that_breaks_its_contract_though_it_is_signed(
    instance: Instance, shelf: Shelf, policy: KeylessPolicy, tmp_path: Path
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    rewrite(outputs, outputs.bundle.read_bytes() + b"behind the end")
    sign(outputs.bundle, instance)
    refused(outputs, policy, "behind", ContractError)


def rewrite(outputs: Outputs, data: bytes) -> None:
    """Give a release other bytes, and let all its documents be about them."""
    before = hashlib.sha256(outputs.bundle.read_bytes()).hexdigest()
    outputs.bundle.write_bytes(data)
    after = hashlib.sha256(data).hexdigest()
    for path in (outputs.digest, outputs.provenance, outputs.sbom):
        path.write_bytes(path.read_bytes().replace(before.encode(), after.encode()))


def test_an_sbom_that_isnt_the_bundles_own_though_it_is_signed(
    instance: Instance, shelf: Shelf, policy: KeylessPolicy, tmp_path: Path
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    edited(outputs.sbom, lambda document: document["components"][0].update(description="something else"))
    sign(outputs.bundle, instance)
    refused(outputs, policy, "isn't what the SBOM inside", ContractError)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda document: document["components"].append({**document["components"][0], "group": "x"}),
            "twice",
        ),
        (lambda document: document.update(surprise=1), "schema"),
    ],
)
def test_an_sbom_that_doesnt_hold_though_it_is_signed(
    instance: Instance,
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    reason: str,
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    edited(outputs.sbom, change)
    # What signs here doesn't sign it; somebody else's program might.
    with pytest.raises(ContractError, match=reason):
        sign(outputs.bundle, instance)
    sha256 = hashlib.sha256(outputs.bundle.read_bytes()).hexdigest()
    statement = sbom_statement(outputs.sbom.read_bytes(), outputs.bundle.name, sha256)
    outputs.sbom_signature.write_bytes(raw_statement(statement, instance, tmp_path))
    refused(outputs, policy, reason, ContractError)


def test_another_name_than_the_signed_one(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    renamed = Outputs(outputs.bundle.with_name("node24-v2-linux-x86_64-musl.tar.gz"))
    for old, new in zip(outputs.released, renamed.released, strict=True):
        old.rename(new)
    refused(renamed, policy, "is about node24-v1-linux-x86_64-musl.tar.gz, not about")


WORKFLOW = "https://git.example.org/owner/capsules/.github/workflows/release.yml@refs/tags/v1"


@pytest.mark.parametrize(("built_by", "good"), [(WORKFLOW, True), (LOCAL_BUILDER, False)])
def test_a_workflow_signs_what_it_built_itself(
    instance: Instance,
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    built_by: str,
    good: bool,
) -> None:
    monkeypatch.setattr(instance.provider, "identity", WORKFLOW)
    (tmp_path / "dist").mkdir()
    bundle = write_release(tmp_path / "dist", builder={**BUILDER, "id": built_by})
    sign(bundle, instance)
    wanted = replace(policy, identity=WORKFLOW)
    if good:
        assert verify_release(bundle, wanted).provenance.builder.id == WORKFLOW
    else:
        refused(Outputs(bundle), wanted, "names the builder 'urn:agentcompass:.*:local'")
    # Whoever trusts another builder says so.
    assert verify_release(bundle, replace(wanted, builder=built_by)).provenance.builder.id == built_by
