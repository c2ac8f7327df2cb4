"""Signing with a key, and what isn't that key's. What is written of it is written wholly or not at all."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from capsule_build.cli.app import run
from capsule_build.release.keys import PASSWORD_VARIABLE, load_private_key
from capsule_build.release.outputs import Outputs, publish
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import SignatureError, UsageError
from tests.signable import write_release
from tests.signed import edited, instance, policy, refused, shelf, taken
from tests.signing_keys import public, write_key
from tests.sigstore_instance import IDENTITY, ISSUER

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.release.policy import KeylessPolicy
    from tests.signed import Shelf

__all__ = ["instance", "policy", "shelf"]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture
def signed(tmp_path: Path, key: Path) -> Outputs:
    """A release that the key has signed."""
    dist = tmp_path / "dist"
    dist.mkdir()
    bundle = write_release(dist)
    assert run(["sign", str(bundle), "--key", str(key)]) == 0
    return Outputs(bundle)


def test_what_a_key_signed_is_verified_with_its_public_half(
    signed: Outputs, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify_release(signed.bundle, KeyPolicy(public(key))).signed_at is None
    capsys.readouterr()
    assert run(["verify", str(signed.bundle), "--public-key", str(public(key)), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["bundles"]
    assert entry["ok"]
    assert entry["signer"].startswith("key ")
    assert run(["verify", str(signed.bundle), "--public-key", str(public(key))]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        f"verified {signed.bundle.name}",
        f"  sha256     {entry['sha256']}",
        f"  signed by  {entry['signer']}",
        "  at         unknown",
        f"  built by   {entry['builder']}",
        "  overrides  none",
    ]


def test_it_is_a_sigstore_bundle_with_a_hint_and_nothing_of_the_key(signed: Outputs, key: Path) -> None:
    document = json.loads(signed.signature.read_bytes())
    assert document["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert set(document["verificationMaterial"]) == {"publicKey", "tlogEntries"}
    secret = key.read_text().splitlines()[1]
    for path in signed.bundle.parent.iterdir():
        assert secret.encode() not in path.read_bytes()


def test_another_key(signed: Outputs, tmp_path: Path) -> None:
    other = write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()), name="other")
    with pytest.raises(SignatureError, match="is of another key: its hint is") as caught:
        verify_release(signed.bundle, KeyPolicy(public(other)))
    # A hint is only a hint: who forges it gets no further.
    hint = str(caught.value).rpartition("not ")[2].strip(".'")
    for path in (signed.signature, signed.provenance_signature, signed.sbom_signature):
        edited(path, lambda found: found["verificationMaterial"]["publicKey"].update(hint=hint))
    with pytest.raises(SignatureError, match="isn't the key's for this content"):
        verify_release(signed.bundle, KeyPolicy(public(other)))


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("bundle", "or the file was changed"),
        ("provenance", "isn't the provenance"),
        ("sbom", "isn't the SBOM"),
    ],
)
def test_a_change_is_seen(signed: Outputs, key: Path, what: str, reason: str) -> None:
    path: Path = getattr(signed, what)
    path.write_bytes(path.read_bytes().replace(b"24.19.0", b"24.18.0") + b" ")
    with pytest.raises(SignatureError, match=reason):
        verify_release(signed.bundle, KeyPolicy(public(key)))


def test_a_keys_signature_isnt_a_keyless_one(
    signed: Outputs, shelf: Shelf, policy: KeylessPolicy, tmp_path: Path
) -> None:
    refused(signed, policy, "is signed with a key, and a keyless signature is asked for")
    outputs = taken(shelf.signed("v1"), tmp_path / "copy")
    shutil.copy(signed.provenance_signature, outputs.provenance_signature)
    refused(outputs, policy, "provenance.sigstore.json is signed with a key")


def test_a_keyless_signature_isnt_a_keys(key: Path, shelf: Shelf, tmp_path: Path) -> None:
    outputs = taken(shelf.signed("v1"), tmp_path / "copy")
    refused(outputs, KeyPolicy(public(key)), "is a keyless signature, and one of a key is asked for")


def test_statements_and_files_arent_taken_for_each_other(signed: Outputs, key: Path) -> None:
    statement = signed.sbom_signature.read_bytes()
    signed.provenance_signature.write_bytes(signed.signature.read_bytes())
    refused(signed, KeyPolicy(public(key)), "signs a file, not a statement")
    signed.signature.write_bytes(statement)
    refused(signed, KeyPolicy(public(key)), "signs a statement, not a file")


def test_another_type_of_payload(signed: Outputs, key: Path) -> None:
    edited(signed.provenance_signature, lambda found: found["dsseEnvelope"].update(payloadType="text/plain"))
    refused(signed, KeyPolicy(public(key)), "signs something of the type 'text/plain'")


def test_another_builder_must_be_named(signed: Outputs, key: Path) -> None:
    refused(signed, KeyPolicy(public(key), builder="https://ci.example.org/x"), "is wanted")


@pytest.mark.parametrize(
    ("given", "password", "works"),
    [(b"sesame", "sesame", True), (b"sesame", "no", False), (b"sesame", "", False)],
)
def test_a_key_with_a_password(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: bytes,
    password: str,
    works: bool,
) -> None:
    bundle = write_release(tmp_path)
    path = write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()), password=given)
    monkeypatch.setenv(PASSWORD_VARIABLE, password)
    assert run(["sign", str(bundle), "--key", str(path)]) == (0 if works else 2)
    assert "sesame" not in "".join(capsys.readouterr())
    assert Outputs(bundle).signature.exists() is works


@pytest.mark.parametrize(
    ("kind", "password", "said", "advice"),
    [
        ("public", "", "is a public key, and signing takes the private one.", ""),
        ("public", "sesame", "is a public key, and signing takes the private one.", ""),
        ("locked", "", "has a password, and CAPSULE_KEY_PASSWORD gives none.", "Set CAPSULE_KEY_PASSWORD"),
        (
            "locked",
            "mustard",
            "has a password, and CAPSULE_KEY_PASSWORD isn't it.",
            "Set CAPSULE_KEY_PASSWORD",
        ),
        ("open", "mustard", "has no password, and CAPSULE_KEY_PASSWORD gives", "Unset CAPSULE_KEY_PASSWORD"),
        ("none", "", "isn't a PEM private key.", "openssl genpkey"),
        ("none", "mustard", "isn't a PEM private key.", "openssl genpkey"),
    ],
)
def test_what_is_wrong_with_a_key_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, password: str, said: str, advice: str
) -> None:
    given = b"sesame" if kind == "locked" else None
    path = write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()), password=given)
    if kind == "public":
        path = public(path)
    if kind == "none":
        path.write_text("no key")
    monkeypatch.setenv(PASSWORD_VARIABLE, password)
    with pytest.raises(UsageError) as caught:
        load_private_key(path)
    assert f"{path} {said}" in caught.value.message
    assert advice in (caught.value.hint or "")
    assert ("openssl" in str(caught.value)) is (kind == "none")


@pytest.mark.parametrize("kind", ["another curve", "rsa", "rubbish", "missing", "public"])
def test_a_key_that_cant_sign(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = write_release(tmp_path)
    path = tmp_path / "key.pem"
    if kind in {"another curve", "public"}:
        path = write_key(tmp_path, ec.generate_private_key(ec.SECP384R1()))
    if kind == "public":
        path = public(path)
    if kind == "rsa":
        path = write_key(tmp_path, rsa.generate_private_key(65537, 2048))
    if kind == "rubbish":
        path.write_text("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")
    assert run(["sign", str(bundle), "--key", str(path)]) == 2
    said = "".join(capsys.readouterr())
    assert str(path) in said
    assert "c2VjcmV0" not in said
    assert run(["verify", str(bundle), "--public-key", str(path)]) in {2, 6}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--identity", IDENTITY], "needs --identity and --issuer"),
        (["--issuer", ISSUER], "needs --identity and --issuer"),
        ([], "needs --identity and --issuer"),
        (["--identity", "", "--issuer", ISSUER], "needs --identity and --issuer"),
        (["--public-key", "k", "--identity", IDENTITY, "--issuer", ISSUER], "options of one of the two"),
        (["--public-key", "k", "--trust-root", "r"], "options of one of the two"),
    ],
)
def test_the_caller_says_whose_signature_it_must_be(
    signed: Outputs, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["verify", str(signed.bundle), *arguments]) == 2
    assert reason in capsys.readouterr().err.replace("\n", " ")


def test_all_of_a_folder_is_verified_and_what_fails_is_told(
    signed: Outputs, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_release(signed.bundle.parent, "glibc")
    arguments = ["--dist", str(other.parent), "--public-key", str(public(key))]
    capsys.readouterr()
    assert run(["verify", *arguments, "--json"]) == 6
    report = json.loads(capsys.readouterr().out)
    assert {entry["bundle"]: entry["ok"] for entry in report["bundles"]} == {
        str(signed.bundle): True,
        str(other): False,
    }
    assert not report["ok"]


@pytest.mark.parametrize("missing", ["digest", "provenance", "sbom"])
def test_nothing_is_signed_that_isnt_whole(
    tmp_path: Path, key: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(write_release(tmp_path))
    path: Path = getattr(outputs, missing)
    path.unlink()
    assert run(["sign", str(outputs.bundle), "--key", str(key)]) == 2
    assert path.name in capsys.readouterr().err
    assert not outputs.signature.exists()


def test_nothing_is_signed_that_is_about_another_bundle(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(write_release(tmp_path))
    outputs.bundle.write_bytes(outputs.bundle.read_bytes() + b"x")
    assert run(["sign", str(outputs.bundle), "--key", str(key)]) == 5
    assert "isn't the digest of" in capsys.readouterr().err
    assert not outputs.signature.exists()


def test_no_other_bundles_provenance_is_signed(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs, other = (Outputs(write_release(tmp_path, libc)) for libc in ("musl", "glibc"))
    shutil.copy(other.provenance, outputs.provenance)
    assert run(["sign", str(outputs.bundle), "--key", str(key)]) == 6
    assert "is about another file" in capsys.readouterr().err
    assert not outputs.signature.exists()


def test_a_key_that_stands_twice_in_a_signature(signed: Outputs, key: Path) -> None:
    text = signed.signature.read_text()
    signed.signature.write_text(text.replace('"tlogEntries":[]', '"tlogEntries":[],"tlogEntries":[]'))
    refused(signed, KeyPolicy(public(key)), "the key 'tlogEntries' stands twice")


@pytest.mark.parametrize("failing", range(3))
def test_a_rename_that_fails_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    paths[0].write_bytes(b"old a")
    paths[2].write_bytes(b"old c")
    left = list(range(failing))
    real = type(tmp_path).replace

    def replace(self: Path, target: Path) -> Path:
        if target == paths[failing] and not left:
            left.append(failing)
            raise OSError(28, "No space left on device")
        if left:
            left.pop()
        return real(self, target)

    monkeypatch.setattr(type(tmp_path), "replace", replace)
    with pytest.raises(OSError, match="No space"):
        publish({path: b"new " + path.name.encode() for path in paths})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old a", "c": b"old c"}
