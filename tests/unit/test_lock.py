"""The registry lock is what the bundles make of it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.lock import describe, update_lock
from capsule_build.runtime.errors import CapsuleError, ContractError, UsageError
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import Registry, load_registry
from tests import bundles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TAG = "node24-v1"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    (tmp_path / "dist").mkdir()
    return tmp_path / "dist"


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "registry.lock.json"


def lay(
    dist: Path, libc: str = "musl", *, version: str = "24.19.0", note: bytes = b"", **changes: Any
) -> tuple[Path, str]:
    """Lay a bundle with its record into a folder, and return its path and digest."""
    platform = f"linux-x86_64-{libc}"
    document = bundles.manifest(
        runtime={"id": "node24", "version": version},
        platform={"os": "linux", "architecture": "x86_64", "libc": libc},
        install_root=f"/tmp/agentcompass-capsules/node24-{version}-{platform}",
    )
    data = bundles.small_bundle(document=document).add(bundles.file("share/zz-note", note)).data()
    digest = hashlib.sha256(data).hexdigest()
    name = f"{TAG}-{platform}.tar.gz"
    record = {
        "schema_version": "capsule-build.record.v2",
        "bundle": {"filename": name, "sha256": digest, "size": len(data)},
        "capsule": {"tag": TAG, "platform": platform},
        "overrides": [],
        **changes,
    }
    (dist / name).write_bytes(data)
    (dist / f"{name}.build.json").write_text(json.dumps(record))
    return dist / name, digest


def test_a_lock_names_each_bundle(dist: Path, lock: Path) -> None:
    sizes = {libc: (lay(dist, libc)[0].stat().st_size, lay(dist, libc)[1]) for libc in ("glibc", "musl")}
    changes = update_lock(lock, dist)
    capsule = load_registry(lock).capsules[TAG]
    assert (capsule.runtime_id, capsule.runtime_version) == ("node24", "24.19.0")
    assert capsule.tools == ("node", "npm", "npx", "seal-tree")
    assert set(capsule.variants) == {Platform("x86_64", "glibc"), Platform("x86_64", "musl")}
    for platform, variant in capsule.variants.items():
        assert variant.filename == f"{TAG}-{platform}.tar.gz"
        assert (variant.size, variant.sha256) == sizes[platform.libc]
        assert variant.install_root == f"/tmp/agentcompass-capsules/node24-24.19.0-{platform}"
        assert (variant.urls, variant.revoked) == ((), None)
    assert [(change.tag, change.platform.libc, change.before) for change in changes] == [
        (TAG, "glibc", None),
        (TAG, "musl", None),
    ]


def test_the_same_bundles_make_the_same_bytes(dist: Path, lock: Path) -> None:
    lay(dist)
    update_lock(lock, dist)
    data = lock.read_bytes()
    assert update_lock(lock, dist) == []
    assert lock.read_bytes() == data
    assert update_lock(lock, dist, check=True) == []


def test_variants_that_are_not_there_stay(dist: Path, lock: Path) -> None:
    lay(dist, "glibc")
    update_lock(lock, dist)
    for path in dist.iterdir():
        path.unlink()
    lay(dist, "musl")
    update_lock(lock, dist)
    assert len(load_registry(lock).capsules[TAG].variants) == 2


def test_a_digest_does_not_change_under_an_unchanged_tag_unless_that_is_said(dist: Path, lock: Path) -> None:
    _, before = lay(dist)
    update_lock(lock, dist)
    data = lock.read_bytes()
    _, after = lay(dist, note=b"other bytes")
    with pytest.raises(CapsuleError, match="would change under an unchanged tag") as raised:
        update_lock(lock, dist)
    assert f"{TAG} linux-x86_64-musl: {before} -> {after}" in raised.value.message
    assert raised.value.hint is not None
    assert "--replace" in raised.value.hint
    assert lock.read_bytes() == data
    (change,) = update_lock(lock, dist, replace_digests=True)
    assert (change.before, change.after) == (before, after)
    assert load_registry(lock).capsules[TAG].variants[Platform("x86_64", "musl")].sha256 == after


def test_another_version_takes_the_old_ones_variants_with_it(dist: Path, lock: Path) -> None:
    lay(dist, "glibc")
    lay(dist, "musl")
    update_lock(lock, dist)
    for path in dist.iterdir():
        path.unlink()
    lay(dist, "musl", version="24.20.0")
    with pytest.raises(CapsuleError, match="would change"):
        update_lock(lock, dist)
    update_lock(lock, dist, replace_digests=True)
    capsule = load_registry(lock).capsules[TAG]
    assert capsule.runtime_version == "24.20.0"
    assert set(capsule.variants) == {Platform("x86_64", "musl")}


def published(lock: Path, **changes: Any) -> None:
    """Change the musl variant in the lock by hand."""
    registry = load_registry(lock)
    capsule = registry.capsules[TAG]
    platform = Platform("x86_64", "musl")
    variant = replace(capsule.variants[platform], **changes)
    capsules = {TAG: replace(capsule, variants={**capsule.variants, platform: variant})}
    lock.write_bytes(Registry(capsules).to_bytes())


def test_addresses_and_revocations_go_with_the_digest(dist: Path, lock: Path) -> None:
    lay(dist)
    update_lock(lock, dist)
    published(lock, urls=("https://example.org/x",), revoked="a flaw")
    update_lock(lock, dist)
    variant = load_registry(lock).capsules[TAG].variants[Platform("x86_64", "musl")]
    assert (variant.urls, variant.revoked) == (("https://example.org/x",), "a flaw")
    lay(dist, note=b"mended")
    update_lock(lock, dist, replace_digests=True)
    variant = load_registry(lock).capsules[TAG].variants[Platform("x86_64", "musl")]
    assert (variant.urls, variant.revoked) == ((), None)


def test_a_check_writes_nothing_and_says_what_differs(dist: Path, lock: Path) -> None:
    _, digest = lay(dist)
    with pytest.raises(CapsuleError, match=f"nothing -> {digest}") as raised:
        update_lock(lock, dist, check=True)
    assert raised.value.exit_code == 1
    assert raised.value.hint == "Regenerate it with 'capsule-build lock'."
    assert not lock.exists()


def test_a_check_names_the_option_that_a_changed_digest_needs(dist: Path, lock: Path) -> None:
    lay(dist)
    update_lock(lock, dist)
    lay(dist, note=b"other bytes")
    with pytest.raises(CapsuleError) as raised:
        update_lock(lock, dist, check=True)
    assert raised.value.hint == "Regenerate it with 'capsule-build lock --replace'."


def test_a_check_sees_a_lock_that_was_edited(dist: Path, lock: Path) -> None:
    lay(dist)
    update_lock(lock, dist)
    lock.write_bytes(lock.read_bytes().replace(b"\n  ", b"\n    "))
    with pytest.raises(CapsuleError, match="bytes aren't the regenerated ones"):
        update_lock(lock, dist, check=True)


def test_a_check_sees_a_wrong_size_beside_a_right_digest(dist: Path, lock: Path) -> None:
    lay(dist)
    update_lock(lock, dist)
    published(lock, size=1)
    with pytest.raises(CapsuleError, match="bytes aren't the regenerated ones"):
        update_lock(lock, dist, check=True)
    update_lock(lock, dist)
    assert update_lock(lock, dist, check=True) == []


def test_what_was_made_with_overrides_is_in_no_lock(dist: Path, lock: Path) -> None:
    lay(dist, overrides=["node"])
    with pytest.raises(CapsuleError, match=r"was made with overrides \(node\)"):
        update_lock(lock, dist)
    assert not lock.exists()


def test_a_bundle_under_another_name_than_its_tags_is_passed_over(dist: Path, lock: Path) -> None:
    lay(dist, "glibc")
    path, _ = lay(dist, "musl")
    other = dist / "node24-24.17.0-linux-x86_64-musl.tar.gz"
    path.rename(other)
    record = dist / f"{path.name}.build.json"
    (dist / f"{other.name}.build.json").write_text(record.read_text().replace(path.name, other.name))
    record.unlink()
    assert [change.platform.libc for change in update_lock(lock, dist)] == ["glibc"]


def test_a_bundle_that_was_renamed_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist, "musl")
    other = dist / path.name.replace("musl", "glibc")
    path.rename(other)
    (dist / f"{path.name}.build.json").rename(dist / f"{other.name}.build.json")
    with pytest.raises(ContractError, match="in its build record"):
        update_lock(lock, dist)


def test_a_bundle_that_is_not_its_records_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    record = (dist / f"{path.name}.build.json").read_text()
    lay(dist, note=b"other bytes")
    (dist / f"{path.name}.build.json").write_text(record)
    with pytest.raises(ContractError, match="is not the file that its build record describes"):
        update_lock(lock, dist)


def test_a_bundle_that_breaks_the_contract_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ContractError):
        update_lock(lock, dist)
    assert not lock.exists()


def test_a_bundle_without_a_record_is_refused(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    (dist / f"{path.name}.build.json").unlink()
    with pytest.raises(ContractError, match="has no build record"):
        update_lock(lock, dist)


@pytest.mark.parametrize(
    "record",
    [
        "",
        "[]",
        "{}",
        "3",
        '{"schema_version": "capsule-build.record.v2"}',
        '{"schema_version": "capsule-build.record.v2", "capsule": 3, "bundle": {}, "overrides": []}',
    ],
)
def test_what_is_no_record_is_refused(dist: Path, lock: Path, record: str) -> None:
    path, _ = lay(dist)
    (dist / f"{path.name}.build.json").write_text(record)
    with pytest.raises(ContractError, match=r"\.build\.json is not a build record"):
        update_lock(lock, dist)


def test_a_record_of_another_version_is_refused(dist: Path, lock: Path) -> None:
    lay(dist, schema_version="capsule-build.record.v9")
    with pytest.raises(ContractError, match=r"of another version: 'capsule-build\.record\.v9'"):
        update_lock(lock, dist)


def test_a_folder_without_bundles_is_refused(tmp_path: Path, dist: Path, lock: Path) -> None:
    with pytest.raises(UsageError, match="holds no bundle"):
        update_lock(lock, dist)
    with pytest.raises(UsageError, match="isn't there"):
        update_lock(lock, tmp_path / "missing")


def test_a_lock_in_a_folder_that_is_not_there_is_an_error_of_usage(tmp_path: Path, dist: Path) -> None:
    lay(dist)
    with pytest.raises(UsageError, match="missing"):
        update_lock(tmp_path / "missing" / "registry.lock.json", dist)


def test_a_damaged_lock_is_never_overwritten(dist: Path, lock: Path) -> None:
    lay(dist)
    lock.write_text("{")
    with pytest.raises(ContractError):
        update_lock(lock, dist)
    assert lock.read_text() == "{"


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def test_a_writer_waits_for_another_one(dist: Path, lock: Path) -> None:
    lay(dist)
    thread = threading.Thread(target=update_lock, args=(lock, dist))
    with held(lock):
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert not lock.exists()
    thread.join(10)
    assert lock.exists()


def test_no_changes_have_words_too() -> None:
    assert describe([]).strip() == "its bytes aren't the regenerated ones"


def test_the_projects_own_lock_is_in_its_one_spelling() -> None:
    from capsule_build.resources import registry_lock

    assert load_registry(registry_lock()).to_bytes() == registry_lock().read_bytes()
