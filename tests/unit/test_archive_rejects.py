"""Hand-made bad bundles: each is refused, for the rule that it breaks, and nothing of it is left anywhere."""

from __future__ import annotations

import io
import json
import zlib
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import limits
from capsule_build.runtime.archive import BundleReader, check_bundle, extract_bundle, read_members
from capsule_build.runtime.rules import BundleError, Rule, shown
from tests import bundles
from tests.bad_bundles import CASES
from tests.bad_bundles.making import added, changed, raw_manifest
from tests.bad_bundles.packing import PLAIN_HEADER
from tests.bundles import file, link, manifest, small_bundle

if TYPE_CHECKING:
    from pathlib import Path


def test_the_table_holds_at_least_sixty_bad_bundles() -> None:
    assert len(CASES) >= 60


def test_every_rule_is_broken_by_a_bundle_here() -> None:
    """The count of members is the exception: see `test_a_bound_on_members`."""
    assert {rule for rule, _ in CASES.values()} == set(Rule) - {Rule.MEMBER_COUNT}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_bundle_is_refused_by_its_rule(name: str, tmp_path: Path) -> None:
    rule, make = CASES[name]
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(make())
    with pytest.raises(BundleError) as caught:
        check_bundle(bundle)
    assert caught.value.rule is rule, str(caught.value)
    assert f"'{rule.value}'" in caught.value.message
    assert caught.value.message.startswith(str(bundle))
    assert caught.value.exit_code == 5
    assert "\n" not in caught.value.message
    assert caught.value.message.isprintable()
    if caught.value.member is not None:
        assert f"Member '{shown(caught.value.member)}' breaks" in caught.value.message

    with pytest.raises(BundleError):
        extract_bundle(bundle, tmp_path / "root")
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.tar.gz"]


def test_a_bound_on_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.runtime.tree.MAX_MEMBERS", 20)
    members = [file(f"share/{number}") for number in range(20)]
    with pytest.raises(BundleError, match="member-count") as caught:
        list(read_members(io.BytesIO(small_bundle().add(*members).data())))
    assert caught.value.member == "share/4"
    assert limits.MAX_MEMBERS == 200_000


def test_symlinks_can_not_take_endless_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.runtime.tree.MAX_LINK_STEPS", 1000)
    links = [link(f"l{number}", "/".join(["bin/.."] * 12)) for number in range(200)]
    with pytest.raises(BundleError, match="link-loop"):
        list(read_members(io.BytesIO(small_bundle().add(*links).data())))


def test_a_bound_on_unpacked_bytes_counts_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.runtime.gzipstream.MAX_UNPACKED_BYTES", 10_000)
    with pytest.raises(BundleError, match="unpacked-size"):
        list(read_members(io.BytesIO(small_bundle().data())))


def test_a_bomb_is_refused_before_its_bytes_are_taken() -> None:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = bundles.tar([*small_bundle().members, file("share/zeros", bytes(48 << 20))])
    packed_bytes = PLAIN_HEADER + deflate.compress(data) + deflate.flush()
    reader = BundleReader(io.BytesIO(packed_bytes))
    taken: list[int] = []

    def take() -> None:
        for _, content in reader:
            while piece := content.read(1 << 20):
                taken.append(len(piece))

    with pytest.raises(BundleError, match="expansion-ratio"):
        take()
    assert sum(taken) < 2 * limits.EXPANSION_GRACE_BYTES


def test_the_member_and_its_neighbour_are_named() -> None:
    with pytest.raises(BundleError, match=r"Member 'bin/node' breaks the rule 'mode'.*4755"):
        list(read_members(io.BytesIO(changed("bin/node", mode=b"0004755\0")())))
    with pytest.raises(BundleError, match=r"'share/l' .*'link-inside'"):
        list(read_members(io.BytesIO(added(link("share/l", "../.."))())))


def test_the_reason_in_a_manifest_reaches_the_message() -> None:
    document = json.dumps({**manifest(), "tools": {}}).encode()
    with pytest.raises(BundleError, match="seal-tree"):
        list(read_members(io.BytesIO(raw_manifest(document)())))
