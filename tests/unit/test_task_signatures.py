"""Who signed a task bundle, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeyPolicy, VerifiedTask
from capsule_build.release.signing import sign_bundle
from capsule_build.release.task_verification import verify_task
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from capsule_build.sandbox.artifact import MAX_ARTIFACT_BYTES
from tests.releases import without_schema
from tests.signed import KINDS, Shelf, edited, instance, policy, shelf, sign
from tests.sigstore_instance import IDENTITY, ISSUER
from tests.task_bundles import collected, lay_task, local_builder, new_key, sign_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from capsule_build.release.policy import KeylessPolicy
    from capsule_build.release.policy import Policy as Asked

__all__ = ["instance", "local_builder", "policy", "shelf"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyPolicy]:
    return new_key(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def signed(tmp_path: Path, keys: tuple[Path, KeyPolicy], monkeypatch: pytest.MonkeyPatch) -> Outputs:
    without_schema(monkeypatch)
    return sign_task(lay_task(tmp_path, collected(own={"helper.py": b"H = 1\n"})), keys[0])


def refused(outputs: Outputs, asked: Asked, reason: str, kind: type[CapsuleError] = SignatureError) -> None:
    with pytest.raises(kind, match=reason) as caught:
        verify_release(outputs.bundle, asked)
    assert caught.value.exit_code == kind.exit_code


def test_untouched_it_is_accepted(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    verified = verify_release(signed.bundle, keys[1])
    assert isinstance(verified, VerifiedTask)
    assert verified.artifact.file.entry == "main"
    assert verified.signer.startswith("key ")


def test_one_changed_byte_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    data = bytearray(signed.bundle.read_bytes())
    data[-1] ^= 1
    signed.bundle.write_bytes(data)
    refused(signed, keys[1], "is the signature of another file, or the file was changed")


def test_another_key_is_refused(signed: Outputs, tmp_path: Path) -> None:
    _, other = new_key(tmp_path / "other")
    refused(signed, other, "is of another key")


@pytest.mark.parametrize("name", ["signature", "provenance_signature", "sbom_signature"])
def test_a_missing_signature_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy], name: str) -> None:
    getattr(signed, name).unlink()
    refused(signed, keys[1], "The signature .* isn't there")


@pytest.mark.parametrize("name", ["provenance", "sbom", "digest"])
def test_a_missing_document_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy], name: str) -> None:
    getattr(signed, name).unlink()
    refused(signed, keys[1], "isn't there")


def test_what_is_of_another_bundle_is_refused(
    signed: Outputs, keys: tuple[Path, KeyPolicy], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = sign_task(lay_task(tmp_path / "other", collected("def main(): return 2\n")), keys[0])
    reasons = {
        "signature": "is the signature of another file",
        "provenance_signature": "is about another file",
        "sbom_signature": "is about another file",
    }
    for name, reason in reasons.items():
        path = getattr(signed, name)
        kept = path.read_bytes()
        shutil.copy(getattr(other, name), path)
        refused(signed, keys[1], reason)
        path.write_bytes(kept)
    for name, reason in (("provenance", "isn't the provenance"), ("sbom", "isn't the SBOM")):
        path = getattr(signed, name)
        kept = path.read_bytes()
        shutil.copy(getattr(other, name), path)
        refused(signed, keys[1], reason)
        path.write_bytes(kept)
    shutil.copy(other.digest, signed.digest)
    refused(signed, keys[1], "isn't the digest", ContractError)


def test_another_name_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    for path in signed.released:
        path.rename(path.with_name(path.name.replace("hello", "other")))
    renamed = Outputs(signed.bundle.with_name("other.wasm"))
    refused(renamed, keys[1], r"is about hello\.wasm, not about other\.wasm")


def test_another_builder_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    refused(signed, replace(keys[1], builder="https://ci.example.org/x"), "names the builder")


def test_a_capsules_signature_is_none_of_a_task(
    signed: Outputs, keys: tuple[Path, KeyPolicy], tmp_path: Path
) -> None:
    """What a bundle is called says what it must be."""
    for path in signed.released:
        path.rename(path.with_name(path.name.replace(".wasm", ".tar.gz")))
    refused(Outputs(signed.bundle.with_name("hello.tar.gz")), keys[1], "has the build type")


def test_the_bytes_that_were_read_are_what_is_verified(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    """Nothing under the bundle's name is opened again."""
    data = signed.bundle.read_bytes()
    signed.bundle.unlink()
    assert verify_task(signed.bundle, data, keys[1]).artifact.file.entry == "main"


@pytest.mark.parametrize(
    ("change", "reason", "kind"),
    [
        (
            lambda d: d["predicate"]["buildDefinition"]["internalParameters"]["task"].update(entry="x"),
            "don't agree about what it is",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"]["internalParameters"]["guest"].update(
                sha256="ab" * 32
            ),
            "don't agree about what it is",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"]["externalParameters"].update(file="x.py"),
            "don't agree about the source's name",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"]["resolvedDependencies"][1]["digest"].update(
                sha256="ab" * 32
            ),
            "don't agree about the files in it",
            SignatureError,
        ),
    ],
)
def test_what_does_not_agree_is_not_signed(
    tmp_path: Path,
    keys: tuple[Path, KeyPolicy],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any]], None],
    reason: str,
    kind: type[CapsuleError],
) -> None:
    without_schema(monkeypatch)
    outputs = Outputs(lay_task(tmp_path))
    edited(outputs.provenance, change)
    with pytest.raises(kind, match=reason):
        sign_task(outputs.bundle, keys[0])
    assert not outputs.signature.exists()


def test_an_sbom_of_other_files_is_not_signed(
    tmp_path: Path, keys: tuple[Path, KeyPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_schema(monkeypatch)
    outputs = Outputs(lay_task(tmp_path))
    edited(outputs.sbom, lambda d: d["metadata"]["component"]["components"].clear())
    with pytest.raises(ContractError, match=r"doesn't list the file 'hello\.py'"):
        sign_task(outputs.bundle, keys[0])


def test_what_is_too_large_is_no_bundle(tmp_path: Path, keys: tuple[Path, KeyPolicy]) -> None:
    path = tmp_path / "big.wasm"
    with path.open("wb") as stream:
        stream.truncate(MAX_ARTIFACT_BYTES + 1)
    with pytest.raises(UsageError, match="has more than"):
        verify_release(path, keys[1])


# An identity, by an instance of Sigstore's services on this machine


@pytest.mark.parametrize("kind", KINDS)
def test_an_identity_signs(tmp_path: Path, shelf: Shelf, policy: KeylessPolicy, kind: str) -> None:
    (tmp_path / "dist").mkdir()
    bundle = lay_task(tmp_path / "dist")
    sign(bundle, shelf.instance, kind)
    verified = verify_release(bundle, policy)
    assert verified.signer == f"{IDENTITY} ({ISSUER})"
    assert verified.signed_at is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"identity": "somebody@example.org"}, "Certificate's SANs do not match"),
        ({"issuer": "https://other.example.org"}, "Certificate's OIDCIssuer does not match"),
        ({"builder": "https://ci.example.org/build.yml"}, "names the builder"),
    ],
)
def test_somebody_elses_signature_is_refused(
    tmp_path: Path,
    shelf: Shelf,
    policy: KeylessPolicy,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    reason: str,
) -> None:
    without_schema(monkeypatch)
    (tmp_path / "dist").mkdir()
    bundle = lay_task(tmp_path / "dist")
    sign(bundle, shelf.instance)
    refused(Outputs(bundle), replace(policy, **change), reason)  # type: ignore[arg-type]


def test_the_kind_of_signature_is_the_callers_choice(
    tmp_path: Path,
    shelf: Shelf,
    policy: KeylessPolicy,
    keys: tuple[Path, KeyPolicy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_schema(monkeypatch)
    (tmp_path / "dist").mkdir()
    bundle = lay_task(tmp_path / "dist")
    sign(bundle, shelf.instance)
    refused(Outputs(bundle), keys[1], "is a keyless signature, and one of a key is asked for")
    sign_task(bundle, keys[0])
    refused(Outputs(bundle), policy, "is signed with a key, and a keyless signature is asked for")


def test_a_signer_is_asked_for_nothing_that_is_wrong(tmp_path: Path) -> None:
    """The digest beside it is that of other bytes."""

    class Never:
        identity = "nobody"

        def sign_artifact(self, path: Path) -> bytes:
            raise AssertionError(path)

        def sign_statement(self, data: bytes) -> bytes:
            raise AssertionError(data)

    bundle = lay_task(tmp_path)
    bundle.write_bytes(bundle.read_bytes() + b"\0")
    with pytest.raises(ContractError, match="isn't the digest"):
        sign_bundle(bundle, Never())
