"""What must not be accepted, each for its own reason: a release that is signed, and what is wrong."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sigstore._internal.tuf import DEFAULT_TUF_URL, _get_dirs
from sigstore_models.bundle.v1 import Bundle

from capsule_build.release.outputs import Outputs
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import SignatureError, UsageError
from tests.examples import examples
from tests.signed import (
    KINDS,
    Shelf,
    edited,
    habits,
    instance,
    policy,
    raw_sign,
    refused,
    shelf,
    sign,
    taken,
)
from tests.sigstore_instance import IDENTITY, ISSUER, running
from tests.sigstore_instance.authority import ISSUER_V1, ISSUER_V2

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from capsule_build.release.policy import KeylessPolicy
    from tests.sigstore_instance import Instance

__all__ = ["instance", "policy", "shelf"]


@pytest.mark.parametrize("kind", KINDS)
def test_untouched_it_is_accepted(shelf: Shelf, policy: KeylessPolicy, kind: str) -> None:
    verified = verify_release(shelf.signed(kind), policy)
    assert verified.signer == f"{IDENTITY} ({ISSUER})"
    assert verified.signed_at is not None


def test_a_tampered_bundle(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    data = bytearray(outputs.bundle.read_bytes())
    data[-20] ^= 1
    outputs.bundle.write_bytes(data)
    refused(outputs, policy, "is the signature of another file, or the file was changed")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"identity": "somebody@example.org"}, "Certificate's SANs do not match somebody@example.org"),
        ({"identity": IDENTITY.upper()}, "Certificate's SANs do not match"),
        ({"issuer": "https://other.example.org"}, "Certificate's OIDCIssuer does not match"),
        ({"issuer": ISSUER + "/"}, "Certificate's OIDCIssuer does not match"),
        ({"builder": "https://ci.example.org/build.yml"}, "names the builder .*local.* is wanted"),
    ],
)
def test_somebody_else(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    refused(taken(shelf.signed("v1"), tmp_path), replace(policy, **change), reason)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"identity": ""}, {"issuer": ""}])
def test_nobody_in_particular(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, change: dict[str, str]
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    refused(outputs, replace(policy, **change), "both are needed", UsageError)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("issuers", "reason"),
    [
        ((), "does not contain OIDCIssuer"),
        ((ISSUER_V1,), r"does not contain OIDCIssuerV2"),
        ((ISSUER_V2,), r"does not contain OIDCIssuer \("),
    ],
)
def test_a_certificate_that_names_no_issuer(
    instance: Instance,
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    issuers: tuple[Any, ...],
    reason: str,
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    with habits(instance, issuers=issuers):
        raw_sign(outputs, instance, tmp_path)
    refused(outputs, policy, reason)


def test_the_signature_of_another_bundle(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path)
    shutil.copy(Outputs(shelf.signed("v1", b"another")).signature, outputs.signature)
    refused(outputs, policy, "is the signature of another file, or the file was changed")


def flipped(text: str) -> str:
    """Base64 with one bit of its bytes changed, near their end."""
    data = bytearray(base64.b64decode(text))
    data[-3] ^= 1
    return base64.b64encode(data).decode()


def entry(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["verificationMaterial"]["tlogEntries"][0]
    return found


def edit_checkpoint(document: dict[str, Any]) -> None:
    proof = entry(document)["inclusionProof"]
    head, _, signature = proof["checkpoint"]["envelope"].rpartition(" ")
    proof["checkpoint"]["envelope"] = f"{head} {flipped(signature.strip())}\n"


def edit_log_size(document: dict[str, Any]) -> None:
    proof = entry(document)["inclusionProof"]
    lines = proof["checkpoint"]["envelope"].split("\n")
    lines[1] = str(int(lines[1]) + 1)
    proof["checkpoint"]["envelope"] = "\n".join(lines)


def edit(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place = entry(document)
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = flipped(place[path[-1]])

    return change


def edit_time(document: dict[str, Any]) -> None:
    entry(document)["integratedTime"] = str(int(entry(document)["integratedTime"]) + 1)


def edit_timestamp(document: dict[str, Any]) -> None:
    (timestamp,) = document["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"]
    timestamp["signedTimestamp"] = flipped(timestamp["signedTimestamp"])


def drop_timestamps(document: dict[str, Any]) -> None:
    del document["verificationMaterial"]["timestampVerificationData"]


def drop_entry(document: dict[str, Any]) -> None:
    document["verificationMaterial"]["tlogEntries"] = []


EDITS: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("v1", edit("canonicalizedBody"), "inclusion proof contains invalid root hash"),
    ("v2+tsa", edit("canonicalizedBody"), "inclusion proof contains invalid root hash"),
    ("v1", edit("inclusionProof", "rootHash"), "invalid root hash"),
    ("v2+tsa", edit("inclusionProof", "rootHash"), "invalid root hash"),
    ("v1", edit_checkpoint, "checkpoint: invalid signature"),
    ("v2+tsa", edit_checkpoint, "checkpoint: invalid signature"),
    ("v1", edit_log_size, "checkpoint: invalid signature"),
    ("v1", edit("inclusionPromise", "signedEntryTimestamp"), "SET: invalid inclusion promise"),
    ("v1", edit_time, "SET: invalid inclusion promise"),
    ("v2+tsa", edit_timestamp, "not enough sources of verified time"),
    ("v1+tsa", edit_timestamp, "has a timestamp that doesn't hold"),
    ("v2+tsa", drop_timestamps, "must contain an inclusion promise or signed timestamp|signed time"),
    ("v1", drop_entry, "exactly one log entry"),
    ("v1", lambda document: document.update(mediaType="text/plain"), "mediaType"),
    (
        "v1",
        lambda document: document.update(mediaType="application/vnd.dev.sigstore.bundle+json;version=0.1"),
        "of another version",
    ),
]


@pytest.mark.parametrize(("kind", "change", "reason"), EDITS)
def test_an_edited_signature(
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    kind: str,
    change: Callable[[dict[str, Any]], None],
    reason: str,
) -> None:
    outputs = taken(shelf.signed(kind), tmp_path)
    edited(outputs.signature, change)
    refused(outputs, policy, reason)


@pytest.mark.parametrize("kind", ["v1", "v2+tsa"])
@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("certificate", "Signature is invalid for input"),
        ("tlogEntries", "transparency log entry is inconsistent with other materials"),
    ],
)
def test_a_part_of_another_signature(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, kind: str, part: str, reason: str
) -> None:
    outputs = taken(shelf.signed(kind), tmp_path)
    other = json.loads(Outputs(shelf.signed(kind, b"another")).signature.read_bytes())
    swapped = other["verificationMaterial"][part]
    edited(outputs.signature, lambda document: document["verificationMaterial"].update({part: swapped}))
    refused(outputs, policy, reason)


def test_a_rogue_instance(shelf: Shelf, policy: KeylessPolicy, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    with running() as rogue:
        sign(outputs.bundle, rogue)
    refused(outputs, policy, "failed to build timestamp certificate chain")


def test_a_root_planted_in_the_users_cache(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    for folder in _get_dirs(DEFAULT_TUF_URL):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(shelf.root, folder / "trusted_root.json")
    # Named, the same root is trusted; found, it isn't.
    verify_release(outputs.bundle, policy)
    refused(outputs, replace(policy, trust_root=None), "failed to build timestamp certificate chain")


@pytest.mark.parametrize("seconds", [3600, -3600])
@pytest.mark.parametrize("kind", ["v1", "v2+tsa"])
def test_signing_outside_of_the_certificates_life(
    instance: Instance, shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, seconds: int, kind: str
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    instance.clock = seconds
    try:
        raw_sign(outputs, instance, tmp_path, kind=kind)
    finally:
        instance.clock = 0
    refused(outputs, policy, "certificate chain: .*(not valid|validity)")


@pytest.mark.parametrize(
    ("sct", "reason"),
    [
        ("missing", "does not contain a signed certificate timestamp extension"),
        ("rogue", "failed to verify SCT .*invalid signature"),
    ],
)
def test_a_certificate_that_no_log_promised(
    instance: Instance,
    shelf: Shelf,
    policy: KeylessPolicy,
    tmp_path: Path,
    sct: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "dist")
    # A signer who doesn't look.
    monkeypatch.setattr("sigstore.sign.verify_sct", lambda *_: None)
    with habits(instance, sct=sct):
        raw_sign(outputs, instance, tmp_path)
    refused(outputs, policy, reason)


def meaning(data: bytes) -> tuple[str, bytes]:
    """What a signature says: not how base64 fills its last byte, nor the name beside a checkpoint's own."""
    bundle = Bundle.from_json(data)
    (found,) = bundle.verification_material.tlog_entries
    assert found.inclusion_proof.checkpoint is not None
    note, _, line = found.inclusion_proof.checkpoint.envelope.rpartition("\n\n")
    found.inclusion_proof.checkpoint.envelope = note
    dash, _, signature = line.split(" ")
    return bundle.to_json() + dash + line[-1], base64.b64decode(signature)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 1 << 20), bit=st.integers(0, 7))
def test_a_bit_anywhere_in_a_signature(
    shelf: Shelf, policy: KeylessPolicy, tmp_path: Path, place: int, bit: int
) -> None:
    """Whatever it breaks, it is refused; unless the file still says the same."""
    outputs = taken(shelf.signed("v1"), tmp_path)
    data = bytearray(outputs.signature.read_bytes())
    before = meaning(bytes(data))
    data[place % len(data)] ^= 1 << bit
    outputs.signature.write_bytes(data)
    with contextlib.suppress(ValueError):
        if meaning(bytes(data)) == before:
            return
    with pytest.raises(SignatureError):
        verify_release(outputs.bundle, policy)
