"""The store: bundles that are there, that are put there, and their signatures."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from capsule_build.runtime import DigestError, InputError, SignatureError, Store, UsageError
from tests.downloads import DATA, NAME, PLATFORM, names, resolved, site, store
from tests.nobody import as_nobody
from tests.servers import Site, body

__all__ = ["site", "store"]

# A bundle that is there


def test_a_bundle_that_is_there_is_hashed_and_no_server_is_asked(store: Store, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(DATA)
    before = (store.folder / NAME).stat()
    assert store.get(resolved(f"{site.url}a")) == store.folder / NAME
    assert (store.folder / NAME).stat() == before
    assert names(store) == [NAME]
    assert site.asked == []


def test_a_read_only_data_folder_with_a_good_bundle_serves(site: Site) -> None:
    with tempfile.TemporaryDirectory() as made:
        # Not below pytest's own folder, which is its user's alone.
        Path(made).chmod(0o755)
        store = Store(Path(made, "data"))
        store.folder.mkdir(parents=True)
        (store.folder / NAME).write_bytes(DATA)
        (store.folder / NAME).chmod(0o444)
        store.folder.chmod(0o555)
        store.folder.parent.chmod(0o555)
        try:
            assert as_nobody(lambda: store.get(resolved(f"{site.url}a")).name) == NAME
        finally:
            store.folder.parent.chmod(0o755)
            store.folder.chmod(0o755)
    assert site.asked == []


def test_a_wrong_digest_is_an_error_and_the_file_is_left_alone(store: Store, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"x" * len(DATA))
    site.answers["/a"] = body(DATA)
    with pytest.raises(DigestError) as caught:
        store.get(resolved(f"{site.url}a"))
    assert hashlib.sha256(b"x" * len(DATA)).hexdigest() in str(caught.value)
    assert f"capsule fetch node24-v1 --platform {PLATFORM} --replace\n" in str(caught.value)
    assert caught.value.exit_code == 3
    assert (store.folder / NAME).read_bytes() == b"x" * len(DATA)
    assert site.asked == []


@pytest.mark.parametrize("old", [b"x" * len(DATA), b"short"])
def test_a_superseded_bundle_is_replaced_when_asked_for(store: Store, site: Site, old: bytes) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(old)
    site.answers["/a"] = body(DATA)
    assert store.get(resolved(f"{site.url}a"), replace=True).read_bytes() == DATA
    assert names(store) == [NAME]


def test_replacing_keeps_the_old_bundle_when_the_new_one_can_t_be_had(store: Store, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"old")
    with pytest.raises(InputError, match="404"):
        store.get(resolved(f"{site.url}a"), replace=True)
    assert (store.folder / NAME).read_bytes() == b"old"


def test_a_folder_in_a_bundle_s_place(store: Store) -> None:
    (store.folder / NAME).mkdir(parents=True)
    with pytest.raises(InputError, match="can't be read"):
        store.get(resolved())


def test_without_a_url_the_bundle_must_be_put_there(store: Store) -> None:
    with pytest.raises(InputError, match="has no URL") as caught:
        store.get(resolved())
    command = f"capsule fetch node24-v1 --from dist/{NAME}"
    assert caught.value.hint == (
        "'capsule-build node24 --libc musl' builds it; this, with your --lock and --data-dir, puts it into "
        f"the store:\n{command}"
    )
    # A damaged one is not said to be absent, and the same command mends it.
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"x" * len(DATA))
    for replacing in (False, True):
        with pytest.raises(InputError) as caught:
            store.get(resolved(), replace=replacing)
        assert str(store.folder / NAME) in caught.value.message
        assert f"{command} --replace" in str(caught.value.hint)
        assert (store.folder / NAME).read_bytes() == b"x" * len(DATA)


# A bundle that lies elsewhere


def test_a_bundle_is_put_into_a_store_that_is_not_there_yet(store: Store, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.write_bytes(DATA)
    assert not store.has(resolved())
    path = store.add(resolved(), built)
    assert (path, path.read_bytes(), names(store)) == (store.folder / NAME, DATA, [NAME])
    assert path.stat().st_mode & 0o777 == 0o644
    assert store.has(resolved())
    before = path.stat()
    assert store.add(resolved(), built).stat() == before


@pytest.mark.parametrize("data", [b"x" * len(DATA), DATA[:-1], b""], ids=["other", "short", "empty"])
def test_another_file_is_not_put_into_the_store(store: Store, tmp_path: Path, data: bytes) -> None:
    built = tmp_path / "built"
    built.write_bytes(data)
    with pytest.raises(DigestError, match=f"'{built}' is not the bundle of 'node24-v1'"):
        store.add(resolved(), built)
    assert names(store) == []


@pytest.mark.parametrize("data", [b"x" * len(DATA), DATA[:-1]], ids=["other", "short"])
def test_another_file_is_an_error_also_where_the_bundle_is_there(
    store: Store, tmp_path: Path, data: bytes
) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(DATA)
    before = (store.folder / NAME).stat()
    wrong = tmp_path / "wrong"
    wrong.write_bytes(data)
    with pytest.raises(DigestError, match=f"'{wrong}' is not the bundle of 'node24-v1'"):
        store.add(resolved(), wrong)
    with pytest.raises(DigestError, match=f"'{wrong}' is not the bundle of 'node24-v1'"):
        store.add(resolved(), wrong, replace=True)
    assert ((store.folder / NAME).stat(), names(store)) == (before, [NAME])


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_is_not_there_is_wrong_usage(store: Store, tmp_path: Path, *, there: bool) -> None:
    store.folder.mkdir(parents=True)
    if there:
        (store.folder / NAME).write_bytes(DATA)
    for absent in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match=f"The file '{absent}' can't be read"):
            store.add(resolved(), absent)


def test_a_damaged_bundle_is_replaced_by_a_file_only_when_asked_for(store: Store, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.write_bytes(DATA)
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"damaged")
    with pytest.raises(DigestError, match="is not the bundle"):
        store.add(resolved(), built)
    assert (store.folder / NAME).read_bytes() == b"damaged"
    assert store.add(resolved(), built, replace=True).read_bytes() == DATA
    assert names(store) == [NAME]


# Signatures


def test_a_signature_is_loaded_beside_the_bundle_and_checked_before_it_has_its_name(
    store: Store, site: Site
) -> None:
    site.answers["/a"] = body(DATA)
    site.answers["/a.sigstore.json"] = body(b"signed")
    seen = []

    def check(bundle: Path, signature: Path) -> None:
        seen.append((bundle.read_bytes() == DATA, signature.read_bytes(), (store.folder / NAME).exists()))

    path = store.get(resolved(f"{site.url}a"), check_signature=check)
    assert seen == [(True, b"signed", False)]
    assert names(store) == [NAME, f"{NAME}.sigstore.json"]
    store.get(
        resolved(f"{site.url}a"), check_signature=lambda bundle, _: seen.append((bundle == path, b"", True))
    )
    assert seen[1] == (True, b"", True)
    assert site.asked == ["/a", "/a.sigstore.json"]


def test_a_bundle_whose_signature_is_refused_gets_no_name(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    site.answers["/a.sigstore.json"] = body(b"forged")

    def refuse(_bundle: Path, _signature: Path) -> None:
        raise SignatureError("The signature is not by whom it should be.")

    with pytest.raises(SignatureError):
        store.get(resolved(f"{site.url}a"), check_signature=refuse)
    assert names(store) == []


def test_a_signature_that_is_not_to_be_had(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    with pytest.raises(InputError, match=r"sigstore\.json"):
        store.get(resolved(f"{site.url}a"), check_signature=lambda *_: None)
    assert NAME not in names(store)


def test_a_bundle_that_is_there_without_its_signature(store: Store) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(DATA)
    with pytest.raises(SignatureError, match="is missing"):
        store.get(resolved(), check_signature=lambda *_: None)


def test_a_signature_of_endless_size_is_refused(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    site.answers["/a.sigstore.json"] = body(b"x" * (2 << 20))
    with pytest.raises(InputError, match="more than 1048576 bytes"):
        store.get(resolved(f"{site.url}a"), check_signature=lambda *_: None)


def test_the_resolved_entry_is_not_changed(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    entry = resolved(f"{site.url}a")
    same = replace(entry)
    store.get(entry)
    assert entry == same
