from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.engine.tarend import without_end_mark
from capsule_build.runtime.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def packed(members: list[tuple[str, bytes | None]], form: int) -> bytes:
    """Pack files, and folders where the content is None."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = tarfile.DIRTYPE
            else:
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content or b""))
    return buffer.getvalue()


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    yield b""
    for at in range(0, len(data), size):
        yield data[at : at + size]


_MEMBERS = st.lists(
    st.tuples(
        st.text("aé/b", min_size=1, max_size=200).map(lambda name: f"n{name}n"),
        st.one_of(st.none(), st.binary(max_size=1500), st.integers(0, 2000).map(bytes)),
    ),
    max_size=4,
)


@given(_MEMBERS, st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]), st.integers(90, 4000))
def test_all_members_stay_and_nothing_follows_the_last(
    members: list[tuple[str, bytes | None]], form: int, size: int
) -> None:
    whole = packed(members, form)
    cut = b"".join(without_end_mark(pieces(whole, size)))
    assert whole.startswith(cut)
    assert not any(whole[len(cut) :])
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        end = max((item.offset_data + -(-item.size // 512) * 512 for item in archive), default=0)
    assert len(cut) == end


def test_what_comes_behind_the_mark_is_read_and_dropped() -> None:
    source = pieces(packed([("a", b"1")], tarfile.PAX_FORMAT) + b"more" * 300, 100)
    assert len(b"".join(without_end_mark(source))) == 1024
    assert next(source, None) is None


def test_a_size_in_an_extended_header_counts() -> None:
    member = tarfile.TarInfo("large")
    member.size, member.pax_headers = 1500, {"size": "1500"}
    extended = bytearray(member.tobuf(tarfile.PAX_FORMAT))
    assert len(extended) == 3 * 512
    extended[1024 + 124 : 1024 + 136] = b"0" * 11 + b"\0"
    stream = without_end_mark([bytes(extended), bytes([1]) * 1536, bytes(1024)])
    assert len(b"".join(stream)) == len(extended) + 1536


@pytest.mark.parametrize("cut", [100, 700])
def test_a_stream_that_ends_within_a_member_is_an_error(cut: int) -> None:
    whole = packed([("a", b"x" * 600)], tarfile.PAX_FORMAT)
    with pytest.raises(UsageError, match="ends in the middle"):
        list(without_end_mark([whole[:cut]]))


def test_what_is_no_tar_is_an_error() -> None:
    with pytest.raises(UsageError, match="no tar"):
        list(without_end_mark([b"!" * 1024]))
