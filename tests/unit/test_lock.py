"""The registry lock is what the bundles make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.lock import check_lock, parse_base_url, revoke, update_lock
from capsule_build.release.outputs import Outputs
from capsule_build.resources import registry_lock
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from capsule_build.runtime.registry import Registry, RevokedError, Variant, load_registry
from tests.locks import BASE, GLIBC, MUSL, dist, lock, variant
from tests.releases import TAG, lay

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.runtime.platforms import Platform

__all__ = ["dist", "lock"]


def emptied(dist: Path) -> None:
    for path in dist.iterdir():
        path.unlink()


def test_a_lock_names_each_bundle(dist: Path, lock: Path) -> None:
    laid = {libc: lay(dist, libc) for libc in ("glibc", "musl")}
    update = update_lock(lock, dist)
    capsule = load_registry(lock).capsules[TAG]
    assert (capsule.runtime_id, capsule.runtime_version) == ("node24", "24.19.0")
    assert capsule.tools == ("node", "npm", "npx", "seal-tree")
    assert set(capsule.variants) == {GLIBC, MUSL}
    for platform, entry in capsule.variants.items():
        path, digest = laid[platform.libc]
        assert entry == Variant(
            filename=path.name,
            sha256=digest,
            size=path.stat().st_size,
            install_root=f"/tmp/agentcompass-capsules/node24-24.19.0-{platform}",
        )
    assert [(change.tag, change.platform, change.before) for change in update.changes] == [
        (TAG, GLIBC, None),
        (TAG, MUSL, None),
    ]
    assert not any(change.moves for change in update.changes)


def test_the_same_bundles_make_the_same_bytes(dist: Path, lock: Path) -> None:
    lay(dist)
    update_lock(lock, dist)
    data = lock.read_bytes()
    assert update_lock(lock, dist).changes == ()
    assert lock.read_bytes() == data
    assert check_lock(lock, dist).changes == ()


def test_the_build_record_is_not_needed(dist: Path, lock: Path) -> None:
    path, digest = lay(dist)
    Outputs(path).record.unlink()
    Outputs(path).digest.unlink()
    update_lock(lock, dist)
    assert variant(lock).sha256 == digest


def test_variants_that_are_not_there_stay(dist: Path, lock: Path) -> None:
    lay(dist, "glibc")
    update_lock(lock, dist)
    emptied(dist)
    lay(dist, "musl")
    update_lock(lock, dist)
    assert set(load_registry(lock).capsules[TAG].variants) == {GLIBC, MUSL}


def test_a_digest_does_not_change_under_an_unchanged_tag_unless_that_is_said(dist: Path, lock: Path) -> None:
    _, before = lay(dist)
    update_lock(lock, dist)
    data = lock.read_bytes()
    _, after = lay(dist, note=b"other bytes")
    with pytest.raises(CapsuleError, match="would change under an unchanged tag") as raised:
        update_lock(lock, dist)
    assert f"{TAG} linux-x86_64-musl: {before} -> {after}" in raised.value.message
    assert "--replace" in str(raised.value.hint)
    assert lock.read_bytes() == data
    (change,) = update_lock(lock, dist, replace_digests=True).changes
    assert change.moves
    assert variant(lock).sha256 == after


def test_another_version_takes_the_old_ones_variants_with_it(dist: Path, lock: Path) -> None:
    _, glibc = lay(dist, "glibc")
    lay(dist, "musl")
    update_lock(lock, dist)
    emptied(dist)
    lay(dist, "musl", version="24.20.0")
    with pytest.raises(CapsuleError, match="would change") as raised:
        update_lock(lock, dist)
    assert f"{TAG} linux-x86_64-glibc: {glibc} -> nothing" in raised.value.message
    update_lock(lock, dist, replace_digests=True)
    capsule = load_registry(lock).capsules[TAG]
    assert capsule.runtime_version == "24.20.0"
    assert set(capsule.variants) == {MUSL}


def edited(lock: Path, **changes: Any) -> None:
    """Change the musl variant in the lock by hand."""
    capsule = load_registry(lock).capsules[TAG]
    entry = replace(capsule.variants[MUSL], **changes)
    capsules = {TAG: replace(capsule, variants={**capsule.variants, MUSL: entry})}
    lock.write_bytes(Registry(capsules).to_bytes())


def test_a_base_makes_addresses_which_stay_with_the_digest(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    update_lock(lock, dist, base_urls=[BASE, "http://127.0.0.1:8000"])
    addresses = (f"{BASE}/{path.name}", f"http://127.0.0.1:8000/{path.name}")
    assert variant(lock).urls == addresses
    assert update_lock(lock, dist).changes == ()
    assert variant(lock).urls == addresses
    (change,) = update_lock(lock, dist, base_urls=[BASE]).changes
    assert not change.moves
    assert variant(lock).urls == addresses[:1]
    lay(dist, note=b"mended")
    update_lock(lock, dist, replace_digests=True)
    assert variant(lock).urls == ()


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("https://example.org", "https://example.org"),
        ("https://example.org:8443/a/b/", "https://example.org:8443/a/b"),
        ("http://127.0.0.1:80/x", "http://127.0.0.1:80/x"),
        ("http://[::1]/", "http://[::1]"),
        ("http://localhost:9", "http://localhost:9"),
    ],
)
def test_what_can_be_a_base(text: str, base: str) -> None:
    assert parse_base_url(text) == base


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://example.org/x", "neither https nor on this machine"),
        ("http://127.0.0.1.example.org", "neither https nor on this machine"),
        ("http://10.0.0.1/", "neither https nor on this machine"),
        ("ftp://example.org", "no http or https URL"),
        ("/var/www", "no http or https URL"),
        ("https://", "no http or https URL"),
        ("https://example.org:0", "no http or https URL"),
        ("https://example.org:port", "is no URL"),
        ("https://[::1", "is no URL"),
        ("https://user:secret@example.org", "names a user"),
        ("https://example.org/?x=1", "a query or a fragment"),
        ("https://example.org/#x", "a query or a fragment"),
        ("https://example.org/a b", "a character that no URL has"),
        ("https://example.org\\x", "a character that no URL has"),
        ("https://ex\u00e4mple.org", "a character that no URL has"),
        ("", "no http or https URL"),
    ],
)
def test_what_is_no_base(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_base_url(text)


def test_a_revocation_stays_with_the_digest(dist: Path, lock: Path) -> None:
    path, digest = lay(dist)
    update_lock(lock, dist, base_urls=[BASE])
    assert revoke(lock, TAG, MUSL, " leaks what it should keep ").revoked == "leaks what it should keep"
    assert variant(lock).urls == (f"{BASE}/{path.name}",)
    with pytest.raises(RevokedError, match="leaks what it should keep"):
        load_registry(lock).resolve(TAG, MUSL)
    update_lock(lock, dist)
    assert (variant(lock).sha256, variant(lock).revoked) == (digest, "leaks what it should keep")
    assert check_lock(lock, dist).changes == ()
    lay(dist, note=b"mended")
    update_lock(lock, dist, replace_digests=True)
    assert variant(lock).revoked is None


@pytest.mark.parametrize(
    ("tag", "platform", "reason", "message"),
    [
        ("node24-v2", MUSL, "a flaw", "no capsule 'node24-v2'"),
        ("./x.tar.gz", MUSL, "a flaw", "is a path"),
        (TAG, GLIBC, "a flaw", "for linux-x86_64-glibc"),
        (TAG, MUSL, " ", "one line of text"),
        (TAG, MUSL, "two\nlines", "one line of text"),
    ],
)
def test_what_can_not_be_revoked(
    dist: Path, lock: Path, tag: str, platform: Platform, reason: str, message: str
) -> None:
    lay(dist)
    update_lock(lock, dist)
    before = lock.read_bytes()
    with pytest.raises(UsageError, match=message):
        revoke(lock, tag, platform, reason)
    assert lock.read_bytes() == before


def test_a_lock_that_is_not_there_can_not_revoke(lock: Path) -> None:
    with pytest.raises(UsageError, match="isn't there"):
        revoke(lock, TAG, MUSL, "a flaw")
    assert not lock.exists()


def test_a_check_writes_nothing_and_says_what_the_lock_lacks(dist: Path, lock: Path) -> None:
    _, digest = lay(dist)
    with pytest.raises(CapsuleError, match=f"nothing -> {digest}") as raised:
        check_lock(lock, dist)
    assert raised.value.exit_code == 1
    assert not lock.exists()


def test_a_check_sees_a_changed_byte_of_a_bundle(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    update_lock(lock, dist)
    data = path.read_bytes()
    for place in (0, 9, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises((ContractError, SignatureError)):
            check_lock(lock, dist)
    path.write_bytes(data)
    assert check_lock(lock, dist).changes == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 1}, "size 1 -> "),
        ({"sha256": "0" * 64}, "0" * 64 + " -> "),
        ({"filename": "x.tar.gz"}, "filename 'x.tar.gz' -> "),
        ({"urls": (f"{BASE}/other.tar.gz",)}, "isn't one of its file"),
        ({"urls": (f"http://example.org/{TAG}-linux-x86_64-musl.tar.gz",)}, "isn't one of its file"),
        ({"urls": (f"https://example.org/x?/{TAG}-linux-x86_64-musl.tar.gz",)}, "isn't one of its file"),
    ],
)
def test_a_check_sees_what_was_edited_by_hand(
    dist: Path, lock: Path, changes: dict[str, Any], message: str
) -> None:
    lay(dist)
    update_lock(lock, dist)
    edited(lock, **changes)
    with pytest.raises(CapsuleError, match=message):
        check_lock(lock, dist)


def test_a_check_that_knows_the_base_sees_any_other_address(dist: Path, lock: Path) -> None:
    path, _ = lay(dist)
    update_lock(lock, dist, base_urls=[BASE])
    check_lock(lock, dist, base_urls=[BASE])
    edited(lock, urls=(f"https://example.net/{path.name}",))
    with pytest.raises(CapsuleError, match=r"urls .*example\.net.* -> .*example\.org"):
        check_lock(lock, dist, base_urls=[BASE])


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        (b"\n  ", b"\n    ", "bytes aren't the regenerated ones"),
        (b"}\n", b"}", "bytes aren't the regenerated ones"),
        (b'"size": ', b'"bytes": ', "lacks 'size'"),
        (b"24.19.0-linux", b"24.19.1-linux", "install root"),
        (b"v1", b"v2", "v1"),
    ],
)
def test_a_check_sees_other_bytes(dist: Path, lock: Path, before: bytes, after: bytes, error: str) -> None:
    lay(dist)
    update_lock(lock, dist)
    assert before in lock.read_bytes()
    lock.write_bytes(lock.read_bytes().replace(before, after))
    with pytest.raises(CapsuleError, match=error):
        check_lock(lock, dist)


def test_the_projects_own_lock_is_in_its_one_spelling() -> None:
    assert load_registry(registry_lock()).to_bytes() == registry_lock().read_bytes()
