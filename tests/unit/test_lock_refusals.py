"""What never gets into a registry lock: bundles that aren't what they say, or that it isn't for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.lock import check_lock, update_lock
from capsule_build.release.outputs import Outputs
from capsule_build.resources import registry_lock
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from tests.locks import GLIBC, dist, lock, variant
from tests.releases import TAG, lay

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["dist", "lock"]


def test_what_was_made_with_overrides_is_in_a_lock_for_tests_only(dist: Path, lock: Path) -> None:
    _, digest = lay(dist, overrides=["node"])
    with pytest.raises(CapsuleError, match=r"was made with overrides \(node\)"):
        update_lock(lock, dist)
    assert not lock.exists()
    update_lock(lock, dist, allow_overrides=True)
    assert variant(lock).sha256 == digest
    with pytest.raises(CapsuleError, match="was made with overrides"):
        check_lock(lock, dist)
    assert check_lock(lock, dist, allow_overrides=True).changes == ()


def test_the_projects_own_lock_is_none_for_tests(dist: Path, tmp_path: Path) -> None:
    lay(dist, overrides=["node"])
    before = registry_lock().read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(registry_lock())
    for path in (registry_lock(), link):
        with pytest.raises(UsageError, match="project's own registry lock"):
            update_lock(path, dist, allow_overrides=True)
    assert registry_lock().read_bytes() == before


def test_a_bundle_under_another_name_than_its_tags_is_passed_over(dist: Path, lock: Path) -> None:
    lay(dist, "glibc")
    other = "node24-24.19.0-linux-x86_64-musl.tar.gz"
    lay(dist, "musl", name=other)
    update = update_lock(lock, dist)
    assert [change.platform for change in update.changes] == [GLIBC]
    assert [item.bundle.name for item in update.passed_over] == [other]
    update_lock(lock, dist, allow_overrides=True)
    assert variant(lock).filename == other


@pytest.mark.parametrize(
    ("libc", "version", "message"),
    [("musl", "24.19.0", "are both node24-v1 for"), ("glibc", "24.20.0", "different versions")],
)
def test_bundles_that_exclude_each_other_are_refused(
    dist: Path, lock: Path, libc: str, version: str, message: str
) -> None:
    lay(dist, "musl")
    lay(dist, libc, version=version, name="other.tar.gz")
    with pytest.raises(ContractError, match=message):
        update_lock(lock, dist, allow_overrides=True)


def test_a_bundle_that_was_renamed_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist, "musl")
    other = Outputs(dist / path.name.replace("musl", "glibc"))
    path.rename(other.bundle)
    Outputs(path).provenance.rename(other.provenance)
    with pytest.raises(SignatureError, match="in its provenance"):
        update_lock(lock, dist)


def test_a_bundle_that_is_not_its_provenances_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    provenance = Outputs(path).provenance.read_bytes()
    lay(dist, note=b"other bytes")
    Outputs(path).provenance.write_bytes(provenance)
    with pytest.raises(SignatureError, match="is about another file"):
        update_lock(lock, dist)
    assert not lock.exists()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("runtime", {"id": "node24", "version": "24.20.0"}),
        ("install_root", "/tmp/agentcompass-capsules/x-1-linux-x86_64-musl"),
    ],
)
def test_a_provenance_that_says_something_else_than_the_manifest_is_refused(
    dist: Path, lock: Path, part: str, value: object
) -> None:
    capsule = {
        "runtime": {"id": "node24", "version": "24.19.0"},
        "tag": TAG,
        "platform": "linux-x86_64-musl",
        "install_root": "/tmp/agentcompass-capsules/node24-24.19.0-linux-x86_64-musl",
    }
    lay(dist, capsule={**capsule, part: value})
    with pytest.raises(ContractError, match="its provenance says"):
        update_lock(lock, dist)


def test_a_digest_file_that_says_something_else_is_refused(dist: Path, lock: Path) -> None:
    path, digest = lay(dist)
    Outputs(path).digest.write_text(f"{digest}  other.tar.gz\n")
    with pytest.raises(ContractError, match=r"\.sha256 doesn't say what"):
        update_lock(lock, dist)


def test_a_bundle_that_breaks_the_contract_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ContractError):
        update_lock(lock, dist)
    assert not lock.exists()


def test_a_bundle_without_provenance_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    Outputs(path).provenance.unlink()
    with pytest.raises(ContractError, match="has no provenance"):
        update_lock(lock, dist)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"_type": "https://in-toto.io/Statement/v1"}'])
def test_what_is_no_provenance_is_refused(dist: Path, lock: Path, data: bytes) -> None:
    path, _ = lay(dist)
    Outputs(path).provenance.write_bytes(data)
    with pytest.raises(ContractError, match=r"\.provenance\.json"):
        update_lock(lock, dist)


def test_a_folder_without_bundles_is_refused(tmp_path: Path, dist: Path, lock: Path) -> None:
    (dist / ".half.tar.gz").write_bytes(b"hidden")
    with pytest.raises(UsageError, match="holds no bundle"):
        update_lock(lock, dist)
    with pytest.raises(UsageError, match="isn't there"):
        update_lock(lock, tmp_path / "missing")
