"""Task bundles with all that lies beside them, made without a sandbox.

`local_builder` is a fixture for all tests of a module that imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from capsule_build.release.outputs import Outputs, publish
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import open_signer, sign_bundle
from capsule_build.sandbox.artifact import pack, source_files
from capsule_build.sandbox.exporting import export_set
from capsule_build.sandbox.guests import Guest, guest_of
from capsule_build.sandbox.modules import Modules
from capsule_build.sandbox.options import Policy
from capsule_build.sandbox.packing import Collected
from capsule_build.sandbox.source import TaskFile
from tests.signing_keys import public, write_key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SOURCE = "def main(): return 1\n"


@pytest.fixture(autouse=True)
def local_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a workflow the builder is that, and not the local one that a key is trusted with."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def collected(
    source: str = SOURCE,
    *,
    own: Mapping[str, bytes] | None = None,
    installed: Mapping[str, bytes] | None = None,
    folders: tuple[str, ...] = (),
    name: str = "hello",
) -> Collected:
    """What is packed of a file of one task."""
    file = TaskFile(f"{name}.py", source, {"main": Policy("main", "main", True)}, "main", Modules(()))
    mine, theirs = dict(own or {}), dict(installed or {})
    inputs = source_files(file.path, source.encode(), mine, theirs)
    return Collected(file, mine, theirs, inputs, folders, "python")


def packed(what: Collected, *, guest: Guest | None = None, version: str | None = None) -> bytes:
    """The bytes of a task bundle."""
    return pack(what.file, what.own, what.installed, guest=guest or guest_of(what.language), version=version)


def lay_task(
    folder: Path, what: Collected | None = None, *, guest: Guest | None = None, version: str | None = None
) -> Path:
    """Write a task bundle, its digest, SBOM and provenance, and return the bundle's path."""
    what = what or collected()
    path = folder / f"{what.file.path.removesuffix('.py')}.wasm"
    export_set(path, packed(what, guest=guest, version=version), what, None, print)
    return path


def new_key(folder: Path, name: str = "key") -> tuple[Path, KeyPolicy]:
    """Write a key, and return it and what asks for its signature."""
    folder.mkdir(parents=True, exist_ok=True)
    key = write_key(folder, ec.generate_private_key(ec.SECP256R1()), name=name)
    return key, KeyPolicy(public(key))


def sign_task(bundle: Path, key: Path) -> Outputs:
    """Sign a task bundle with a key."""
    with open_signer(SigningOptions(key=key), say=print) as signer:
        publish(sign_bundle(bundle, signer))
    return Outputs(bundle)
