"""Whose signatures count: files that say it, and what counts without one."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.cli.app import run
from capsule_build.release.network import ServiceError, require_safe, within
from capsule_build.release.trust import load_trust_config, load_trusted_root
from capsule_build.runtime import process
from capsule_build.runtime.errors import CapsuleError, ContractError, UsageError
from tests.signable import write_release
from tests.sigstore_instance import Instance

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def instance() -> Instance:
    return Instance("http://127.0.0.1:1")


def test_a_root_can_be_given_alone_or_in_a_configuration(instance: Instance, tmp_path: Path) -> None:
    alone = load_trusted_root(instance.write_trusted_root(tmp_path / "root.json"))
    inside = load_trusted_root(instance.write_trust_config(tmp_path / "config.json"))
    assert alone.get_fulcio_certs() == inside.get_fulcio_certs() != []


def test_without_a_file_the_public_instance_counts_as_the_package_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    config = load_trust_config(None)
    assert config.trusted_root.get_fulcio_certs() == load_trusted_root(None).get_fulcio_certs()
    assert config.signing_config.get_fulcio().url.startswith("https://")
    # No cache is made, so none can be planted.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mediaType": "text/plain"}, "neither a trusted root nor"),
        ({"mediaType": None}, "neither a trusted root nor"),
        ({"tlogs": 3}, "isn't a valid"),
        ({"surprise": 3}, "isn't a valid"),
    ],
)
def test_another_file_is_no_root(
    instance: Instance, tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "root.json"
    path.write_text(json.dumps({**instance.trusted_root(), **change}))
    with pytest.raises(ContractError, match=reason):
        load_trusted_root(path)


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1, "a": 2}', b"[]", b" " * (5 << 20)])
def test_rubbish_is_no_root(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "root.json"
    path.write_bytes(data)
    for load in (load_trusted_root, load_trust_config):
        with pytest.raises(ContractError, match=str(path)):
            load(path)


def test_a_root_alone_names_no_services(instance: Instance, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="isn't a client trust configuration"):
        load_trust_config(instance.write_trusted_root(tmp_path / "root.json"))


def test_a_configuration_without_a_log_signs_nothing(
    instance: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_release(tmp_path)
    path = instance.write_trust_config(tmp_path / "config.json")
    document = json.loads(path.read_text())
    document["signingConfig"]["rekorTlogUrls"] = []
    path.write_text(json.dumps(document))
    assert run(["sign", str(bundle), "--trust-config", str(path)]) == 5
    assert "names no services" in capsys.readouterr().err


def test_a_root_with_a_certificate_that_isnt_one_is_refused(
    instance: Instance, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_release(tmp_path)
    path = instance.write_trust_config(tmp_path / "config.json")
    document = json.loads(path.read_text())
    (authority, *_) = document["trustedRoot"]["certificateAuthorities"]
    authority["certChain"]["certificates"][0]["rawBytes"] = ""
    path.write_text(json.dumps(document))
    (tmp_path / "token").write_text(instance.provider.token())
    token = ["--identity-token", str(tmp_path / "token")]
    assert run(["sign", str(bundle), "--trust-config", str(path), *token]) == 5
    whose = ["--identity", "somebody", "--issuer", "https://issuer.example.org"]
    assert run(["verify", str(bundle), "--trust-root", str(path), *whose]) == 5
    assert capsys.readouterr().err.count("The trusted root can't be used: ") == 2


def test_a_service_whose_address_is_none_is_named() -> None:
    with pytest.raises(UsageError, match=r"Fulcio is at 'http://\[::1', which is no URL"):
        require_safe("http://[::1", "Fulcio")


def test_a_file_that_isnt_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        load_trusted_root(tmp_path / "missing")


@pytest.mark.parametrize(
    "url", ["https://x.example.org", "http://127.0.0.1:1/x", "http://localhost", "http://[::1]:2"]
)
def test_a_token_goes_to_these(url: str) -> None:
    require_safe(url, "It")


@pytest.mark.parametrize(
    "url", ["http://x.example.org", "http://127.0.0.1.example.org", "ftp://localhost", "", "x"]
)
def test_a_token_goes_to_none_of_these(url: str) -> None:
    with pytest.raises(UsageError, match="in clear"):
        require_safe(url, "It")


def test_a_step_has_an_end_and_hands_over_what_it_raises() -> None:
    never = threading.Event()
    with pytest.raises(ServiceError, match=r"It didn't answer within 0\.05 s"):
        within(0.05, "It", never.wait)
    never.set()
    assert within(5, "It", lambda: 7) == 7
    assert within(1e300, "It", lambda: 7) == 7

    def fail() -> None:
        raise CapsuleError("its own")

    with pytest.raises(CapsuleError, match="its own"):
        within(5, "It", fail)


def test_commands_that_sign_nothing_load_nothing_for_it() -> None:
    heavy = {"sigstore", "sigstore_models", "cryptography", "pydantic", "jwt", "tuf"}
    program = "import sys, capsule_build.cli.app; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = process.run([sys.executable, "-c", program]).text.split()
    assert "capsule_build" in loaded
    assert heavy & set(loaded) == set()
