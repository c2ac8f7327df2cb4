"""What becomes of damaged bundles: they are refused, or what was changed doesn't matter."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capsule_build.runtime.errors import ContractError
from tests import bundles
from tests.bundles import gzip, small_bundle
from tests.examples import examples
from tests.reading import read_all


@pytest.mark.slow
def test_every_flipped_bit_is_refused_or_harmless() -> None:
    """Harmless: the same members with the same contents come out.

    Some do so: deflate may copy a run of zeros from here or from there, and XFL may say one thing or another.
    """
    data = small_bundle().data()
    info, members = read_all(data)
    harmless = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            other, found = read_all(bytes(flipped))
        except ContractError:
            continue
        assert found == members
        assert other.manifest == info.manifest
        assert other.sha256 != info.sha256
        harmless += 1
    assert harmless < len(data) // 10


@pytest.mark.slow
def test_every_flipped_bit_of_a_tar_is_refused_or_only_content() -> None:
    """Under a right gzip all bits of headers are held; what a content says is its own affair."""
    tar = small_bundle().tar()
    contents = {place for place, kind in enumerate(_kinds(small_bundle())) if kind == "content"}
    for place in range(0, len(tar), 7):
        if place // bundles.BLOCK in contents:
            continue
        flipped = bytearray(tar)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ContractError):
            read_all(gzip(bytes(flipped), level=1))


def _kinds(bundle: bundles.Bundle) -> list[str]:
    """What each block of a bundle's tar is."""
    kinds: list[str] = []
    for member in bundle.members:
        kinds += ["header"] + ["content"] * ((len(member.blocks()) - 1) // bundles.BLOCK)
    return kinds


@settings(max_examples=examples(300))
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 20_000), st.binary(max_size=12), st.integers(0, 12)), min_size=1, max_size=4
    )
)
def test_random_edits_of_the_packed_bytes_are_refused_or_change_nothing(
    edits: list[tuple[int, bytes, int]],
) -> None:
    data = small_bundle().data()
    edited = _edit(data, edits)
    try:
        _, members = read_all(edited)
    except ContractError:
        return
    assert members == read_all(data)[1]


@settings(max_examples=examples(300))
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 20_000), st.binary(max_size=12), st.integers(0, 12)), min_size=1, max_size=4
    )
)
def test_random_edits_of_the_tar_are_refused_or_read_as_tarfile_reads_them(
    edits: list[tuple[int, bytes, int]],
) -> None:
    edited = gzip(_edit(small_bundle().tar(), edits), level=1)
    try:
        _, members = read_all(edited)
    except ContractError:
        return
    with tarfile.open(fileobj=io.BytesIO(edited), mode="r:gz") as other:
        assert [(info.name, info.size, info.linkname) for info in other] == [
            (member.name, member.size, member.target) for member, _ in members
        ]


def _edit(data: bytes, edits: list[tuple[int, bytes, int]]) -> bytes:
    """Put other bytes in the place of some; places beyond the end count round."""
    for place, put, taken in edits:
        start = place % (len(data) + 1)
        data = data[:start] + put + data[start + taken :]
    return data
