"""Keyless signing and verifying, against a Sigstore instance on loopback; and what happens when it fails."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from capsule_build.builder import LOCAL_BUILDER
from capsule_build.cli.app import run
from capsule_build.release.identity import TOKEN_VARIABLE
from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeylessPolicy
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import open_signer
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import SignatureError
from tests.servers import isolate
from tests.signable import write_release
from tests.sigstore_instance import CI_SECRET, IDENTITY, ISSUER, Instance, RefusalError, running

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.slow


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    isolate(monkeypatch)
    for name in (TOKEN_VARIABLE, "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    with running() as started:
        yield started


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    folder.mkdir()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write_token(folder: Path, token: str) -> Path:
    path = folder / "token"
    path.write_text(token + "\n")
    return path


def sign(dist: Path, instance: Instance, token: str, *more: str, rekor: int = 1, tsa: bool = False) -> int:
    """Run `sign` on all bundles of a folder, with a token in a file."""
    config = instance.write_trust_config(dist.parent / "config.json", rekor=rekor, tsa=tsa)
    file = write_token(dist.parent, token)
    options = ["--identity-token", str(file), "--trust-config", str(config), *more]
    return run(["sign", "--dist", str(dist), *options])


def policy(instance: Instance, folder: Path) -> KeylessPolicy:
    return KeylessPolicy(IDENTITY, ISSUER, instance.write_trusted_root(folder / "root.json"))


@pytest.mark.parametrize(("rekor", "tsa"), [(1, False), (1, True), (2, True)])
def test_what_is_signed_can_be_verified(
    instance: Instance, dist: Path, rekor: int, tsa: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    bundles = [write_release(dist, libc) for libc in ("musl", "glibc")]
    assert sign(dist, instance, instance.provider.token(), "--json", rekor=rekor, tsa=tsa) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema_version"] == "capsule-build.sign.v1"
    assert {Path(name).name for name in report["files"]} == {
        path.name for bundle in bundles for path in Outputs(bundle).released[4:]
    }
    root = str(instance.write_trusted_root(dist.parent / "root.json"))
    for bundle in bundles:
        assert {path.name for path in Outputs(bundle).released} <= {path.name for path in dist.iterdir()}
        modes = {stat.S_IMODE(path.stat().st_mode) for path in Outputs(bundle).released[4:]}
        assert modes == {0o644}
    # One certificate for all of it.
    assert instance.asked.count("fulcio") == 1
    assert instance.asked.count("rekor") == 6
    assert instance.asked.count("tsa") == (6 if tsa else 0)
    who = ["--identity", IDENTITY, "--issuer", ISSUER]
    assert run(["verify", "--dist", str(dist), *who, "--trust-root", root, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [entry["ok"] for entry in report["bundles"]] == [True, True]
    assert report["bundles"][0]["signer"] == f"{IDENTITY} ({ISSUER})"
    assert report["bundles"][0]["signed_at"] is not None
    assert run(["verify", "--dist", str(dist), *who, "--trust-root", root]) == 0
    assert IDENTITY in capsys.readouterr().out


def test_a_signature_takes_the_old_ones_place(instance: Instance, dist: Path) -> None:
    bundle = write_release(dist)
    assert sign(dist, instance, instance.provider.token()) == 0
    before = contents(dist)
    assert sign(dist, instance, instance.provider.token()) == 0
    after = contents(dist)
    assert before.keys() == after.keys()
    assert after[Outputs(bundle).signature.name] != before[Outputs(bundle).signature.name]
    verify_release(bundle, policy(instance, dist.parent))


def test_a_ci_gives_its_own_token(
    instance: Instance, dist: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = write_release(dist)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", CI_SECRET)
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{instance.url}/ci-token")
    config = instance.write_trust_config(dist.parent / "config.json")
    assert run(["sign", str(bundle), "--trust-config", str(config)]) == 0
    verify_release(bundle, policy(instance, dist.parent))
    instance.faults["oidc"] = "hang"
    assert run(["sign", str(bundle), "--trust-config", str(config), "--timeout", "0.3"]) == 1
    assert "The CI's token service didn't answer" in capfd.readouterr().err
    instance.faults.clear()
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "another secret")
    assert run(["sign", str(bundle), "--trust-config", str(config)]) == 1
    said = capfd.readouterr().err
    assert "id-token: write" in said
    assert "another secret" not in said


def test_a_token_can_come_by_the_environment_or_by_standard_input(
    instance: Instance, dist: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_release(dist)
    config = instance.write_trust_config(tmp_path / "config.json")
    command = ["sign", "--dist", str(dist), "--trust-config", str(config)]
    monkeypatch.setenv(TOKEN_VARIABLE, instance.provider.token())
    assert run(command) == 0
    monkeypatch.delenv(TOKEN_VARIABLE)
    reading, writing = os.pipe()
    os.write(writing, instance.provider.token().encode())
    os.close(writing)
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run([*command, "--identity-token", "-"]) == 0


# sigstore never closes the socket that the browser is sent back to.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_person_signs_in_with_a_browser(
    instance: Instance, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The browser: goes where it is sent, and follows redirects.
    monkeypatch.setattr("webbrowser.open", lambda url: bool(browse(url)))
    config = instance.write_trust_config(tmp_path / "config.json")
    said: list[str] = []
    with open_signer(SigningOptions(trust_config=config, interactive=True), say=said.append) as signer:
        assert signer.identity == f"{IDENTITY} ({ISSUER})"
    assert instance.url in said[0]
    gc.collect()


def browse(url: str) -> int:
    with urlopen(url) as page:
        return int(page.status)


def test_without_any_identity_it_says_what_to_do(
    instance: Instance, dist: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_release(dist)
    config = instance.write_trust_config(tmp_path / "config.json")
    assert run(["sign", "--dist", str(dist), "--trust-config", str(config)]) == 2
    assert "--identity-token" in capsys.readouterr().err


def test_a_token_on_the_command_line_is_refused_and_not_repeated(
    instance: Instance, dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_release(dist)
    token = instance.provider.token()
    assert run(["sign", "--dist", str(dist), "--identity-token", token]) == 2
    said = "".join(capsys.readouterr())
    assert "can read it" in said
    assert token[:40] not in said


WORKFLOW = "https://ci.example.org/owner/x.yml@refs/tags/v1"


@pytest.mark.parametrize("identity", [WORKFLOW, "robot"])
def test_an_identity_of_any_kind_signs(
    instance: Instance,
    dist: Path,
    identity: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bundle = write_release(dist)
    monkeypatch.setattr(instance.provider, "identity", identity)
    assert sign(dist, instance, instance.provider.token()) == 0
    assert f"Signed as {identity} ({ISSUER})" in capsys.readouterr().out
    wanted = replace(policy(instance, dist.parent), identity=identity, builder=LOCAL_BUILDER)
    if identity == WORKFLOW:
        assert verify_release(bundle, wanted).signer == f"{identity} ({ISSUER})"
    else:
        # sigstore compares such a name together with its DER tag and length: nobody can name it.
        with pytest.raises(SignatureError, match="SANs do not match robot"):
            verify_release(bundle, wanted)


FAULTS = [
    ("fulcio", RefusalError(401, "the token is no good"), 6, r"Fulcio at .* refused the identity \(401\)"),
    ("fulcio", RefusalError(500, "out of order"), 1, r"Fulcio at .* gave no certificate: out of order"),
    ("fulcio", RefusalError(200, "no certificate"), 1, r"Fulcio at .* gave no certificate"),
    ("fulcio", "rubbish", 1, r"Fulcio at .* gave an answer that isn't one"),
    ("fulcio", "hang", 1, r"Fulcio at .* didn't answer within 0.5 s"),
    ("rekor", RefusalError(500, "out of order"), 1, r"Rekor at .* made no log entry: 500: out of order"),
    ("rekor", RefusalError(200, "no entry"), 1, r"Rekor at .* gave an answer that isn't one"),
    ("rekor", "rubbish", 1, r"Rekor at .* gave an answer that isn't one"),
    ("rekor", "hang", 1, r"Rekor at .* didn't answer within 0.5 s"),
    ("tsa", RefusalError(503, "out of order"), 1, r"timestamp authority at .* gave no timestamp"),
    ("tsa", "rubbish", 1, r"timestamp authority at .* gave no timestamp"),
    ("tsa", "hang", 1, r"timestamp authority at .* didn't answer within 0.5 s"),
]


@pytest.mark.parametrize(("service", "fault", "code", "message"), FAULTS)
def test_a_service_that_fails_leaves_the_old_state(
    instance: Instance,
    dist: Path,
    service: str,
    fault: RefusalError | str,
    code: int,
    message: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_release(dist)
    token = instance.provider.token()
    assert sign(dist, instance, token, tsa=True) == 0
    before = contents(dist)
    instance.faults[service] = fault
    assert sign(dist, instance, token, "--timeout", "0.5", rekor=2, tsa=True) == code
    said = "".join(capfd.readouterr()).replace("\n", " ")
    assert re.search(message, said), said
    assert "Traceback" not in said
    assert token not in said
    assert contents(dist) == before


def test_a_service_that_isnt_there(
    instance: Instance, dist: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_release(dist)
    before = contents(dist)
    monkeypatch.setattr(instance, "url", "http://127.0.0.1:1")
    assert sign(dist, instance, instance.provider.token()) == 1
    assert "can't be reached" in capfd.readouterr().err
    assert contents(dist) == before


def test_what_an_authority_repeats_of_the_token_is_left_out(
    instance: Instance, dist: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_release(dist)
    # Valid for the client, which can't check signatures; the authority's answer has the whole of it.
    token = type(instance.provider)(ISSUER, IDENTITY).token()
    assert sign(dist, instance, token) == 6
    said = capfd.readouterr().err
    assert "There was an error processing the identity token [token]" in said.replace("\n", " ")
    assert token not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"seconds": -60}, "expired"),
        ({"aud": "somebody else"}, "Audience doesn't match"),
        ({"nbf": 4_000_000_000}, "not within its validity period"),
    ],
)
def test_a_token_that_isnt_good_goes_nowhere(
    instance: Instance,
    dist: Path,
    claims: dict[str, object],
    reason: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_release(dist)
    token = instance.provider.token(**claims)  # type: ignore[arg-type]  # claims of all kinds
    assert sign(dist, instance, token) == 6
    said = capfd.readouterr().err
    assert reason in said
    assert token not in said
    assert instance.asked == []


def test_a_token_that_expires_in_the_middle_leaves_nothing_and_another_goes_on(
    instance: Instance, dist: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bundles = [write_release(dist, libc) for libc in ("musl", "glibc")]
    before = contents(dist)
    # So short that there is a new certificate for each signature; and when the first is made, the token ends.
    instance.habits.seconds = 20
    ends = time.time() + 3
    instance.faults["rekor"] = lambda: time.sleep(max(0, ends + 0.1 - time.time()))
    assert sign(dist, instance, instance.provider.token(exp=int(ends))) == 6
    assert re.search("not within its validity period|expired", capfd.readouterr().err)
    assert "rekor" in instance.asked
    assert contents(dist) == before
    # A certificate that ends is renewed, as long as the token holds.
    instance.faults.clear()
    instance.asked.clear()
    assert sign(dist, instance, instance.provider.token()) == 0
    assert instance.asked.count("fulcio") > 1
    for bundle in bundles:
        verify_release(bundle, policy(instance, dist.parent))


@pytest.mark.parametrize("sct", ["missing", "rogue"])
def test_a_certificate_that_no_log_promised_signs_nothing(
    instance: Instance, dist: Path, sct: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_release(dist)
    before = contents(dist)
    instance.habits.sct = sct
    assert sign(dist, instance, instance.provider.token()) == 1
    assert "timestamp extension" in capfd.readouterr().err or sct == "rogue"
    assert contents(dist) == before


def test_services_of_another_instance_than_the_roots_are_found_out(
    instance: Instance, dist: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bundle = write_release(dist)
    with running() as other:
        root = {**other.trusted_root(), "ctlogs": instance.trusted_root()["ctlogs"]}
        config = instance.write_trust_config(dist.parent / "mixed.json", root=root)
        token = write_token(dist.parent, instance.provider.token())
        assert run(["sign", str(bundle), "--identity-token", str(token), "--trust-config", str(config)]) == 1
    assert "doesn't hold against the instance's root" in capfd.readouterr().err.replace("\n", " ")
    assert not Outputs(bundle).signature.exists()


def test_no_token_goes_in_clear_to_another_machine(
    instance: Instance, dist: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write_release(dist)
    monkeypatch.setattr(instance, "url", "http://sigstore.example.org")
    assert sign(dist, instance, instance.provider.token()) == 2
    assert "in clear" in capfd.readouterr().err


def test_no_secret_is_written_anywhere(
    instance: Instance, dist: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    write_release(dist)
    token = instance.provider.token()
    caplog.set_level(logging.DEBUG)
    assert sign(dist, instance, token, tsa=True) == 0
    instance.faults["rekor"] = RefusalError(500, "out of order")
    assert sign(dist, instance, token) == 1
    assert caplog.text
    written = b"".join(contents(dist).values()) + "".join([*capfd.readouterr(), caplog.text]).encode()
    for part in token.split("."):
        assert part.encode() not in written
