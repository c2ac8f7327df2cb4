"""A bundle whose SBOM doesn't tell the truth isn't believed, whoever signed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from capsule_build.cli.app import run
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import ContractError
from tests import bundles
from tests.signable import write_release
from tests.signing_keys import public, write_key

if TYPE_CHECKING:
    from pathlib import Path


def test_a_signed_bundle_with_a_file_that_its_sbom_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = write_key(tmp_path, ec.generate_private_key(ec.SECP256R1()))
    listed = bundles.Bundle.listed
    # The list is made first, then a file comes in.
    monkeypatch.setattr(
        bundles.Bundle, "listed", lambda self: listed(self).add(bundles.file("share/zzz-stowaway"))
    )
    bundle = write_release(tmp_path)
    assert run(["sign", str(bundle), "--key", str(key)]) == 0
    with pytest.raises(ContractError, match="doesn't list the file 'share/zzz-stowaway'"):
        verify_release(bundle, KeyPolicy(public(key)))
