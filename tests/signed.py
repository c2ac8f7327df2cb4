"""Signed releases, and what tests of their verification do to them.

`instance`, `shelf` and `policy` are fixtures: a test module imports them.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from sigstore import dsse
from sigstore.oidc import IdentityToken
from sigstore.sign import SigningContext

from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeylessPolicy, Policy
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import open_signer, sign_bundle
from capsule_build.release.trust import load_trust_config
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, SignatureError
from tests.servers import isolate
from tests.signable import write_release
from tests.sigstore_instance import IDENTITY, ISSUER, Instance, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KINDS = {"v1": (1, False), "v1+tsa": (1, True), "v2+tsa": (2, True)}


class Shelf:
    """Signed releases, made once; each test gets copies."""

    def __init__(self, folder: Path, instance: Instance) -> None:
        self.instance = instance
        self.folder = folder
        self.root = instance.write_trusted_root(folder / "root.json")
        self._made: dict[tuple[str, bytes], Path] = {}

    def signed(self, kind: str, note: bytes = b"") -> Path:
        """The bundle of a signed release."""
        if (kind, note) not in self._made:
            dist = self.folder / f"{kind}-{len(self._made)}"
            dist.mkdir()
            bundle = write_release(dist, note=note)
            sign(bundle, self.instance, kind)
            self._made[kind, note] = bundle
        return self._made[kind, note]


def sign(bundle: Path, instance: Instance, kind: str = "v1") -> None:
    rekor, tsa = KINDS[kind]
    config = instance.write_trust_config(bundle.parent.parent / "config.json", rekor=rekor, tsa=tsa)
    token = bundle.parent.parent / "token"
    token.write_text(instance.provider.token())
    options = SigningOptions(trust_config=config, identity_token=token)
    with open_signer(options, say=print) as signer:
        for path, data in sign_bundle(bundle, signer).items():
            path.write_bytes(data)


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with pytest.MonkeyPatch.context() as patch, running() as started:
        isolate(patch)
        yield started


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, instance: Instance) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("shelf"), instance)


@pytest.fixture
def policy(shelf: Shelf) -> KeylessPolicy:
    return KeylessPolicy(IDENTITY, ISSUER, shelf.root)


def taken(bundle: Path, folder: Path) -> Outputs:
    """A copy of a release, to do something to."""
    folder.mkdir(exist_ok=True)
    for path in Outputs(bundle).released:
        shutil.copy(path, folder / path.name)
    return Outputs(folder / bundle.name)


def refused(outputs: Outputs, policy: Policy, reason: str, kind: type[CapsuleError] = SignatureError) -> None:
    with pytest.raises(kind) as caught:
        verify_release(outputs.bundle, policy)
    assert re.search(reason, str(caught.value)), str(caught.value)
    assert caught.value.exit_code == kind.exit_code


@contextlib.contextmanager
def habits(instance: Instance, **changes: Any) -> Iterator[None]:
    """Let Fulcio make other certificates, for a block."""
    before = instance.habits
    instance.habits = replace(before, **changes)
    try:
        yield
    finally:
        instance.habits = before


def raw_sign(outputs: Outputs, instance: Instance, folder: Path, *, kind: str = "v1") -> None:
    """Sign a bundle with sigstore alone, which doesn't verify what it made."""
    rekor, tsa = KINDS[kind]
    config = instance.write_trust_config(folder / "raw.json", rekor=rekor, tsa=tsa)
    context = SigningContext.from_trust_config(load_trust_config(config))
    with context.signer(IdentityToken(instance.provider.token())) as signer:
        outputs.signature.write_text(signer.sign_artifact(outputs.bundle.read_bytes()).to_json())


def raw_statement(data: bytes, instance: Instance, folder: Path) -> bytes:
    """Sign a statement with sigstore alone, which takes any."""
    config = instance.write_trust_config(folder / "raw.json")
    context = SigningContext.from_trust_config(load_trust_config(config))
    with context.signer(IdentityToken(instance.provider.token())) as signer:
        return signer.sign_dsse(dsse.Statement(data)).to_json().encode()


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
