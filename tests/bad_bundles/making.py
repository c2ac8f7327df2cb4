"""How a bad bundle is made of the small one, and the table of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import bundles
from tests.bundles import Entry, extended, file, gzip, manifest, small_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from capsule_build.runtime.rules import Rule

CASES: dict[str, tuple[Rule, Callable[[], bytes]]] = {}


def bad(name: str, rule: Rule, make: Callable[[], bytes]) -> None:
    assert name not in CASES
    CASES[name] = (rule, make)


def added(*entries: Entry) -> Callable[[], bytes]:
    """The small bundle with more members at its end."""
    return lambda: small_bundle().add(*entries).data()


def changed(member: str, /, **fields: bytes | None) -> Callable[[], bytes]:
    """The small bundle with raw header fields of one member changed."""
    return lambda: small_bundle().change(member, **fields).data()


def packed(**options: object) -> Callable[[], bytes]:
    """The small bundle's tar in another gzip."""
    return lambda: gzip(small_bundle().tar(), **options)  # type: ignore[arg-type]  # options of several types


def manifested(**changes: object) -> Callable[[], bytes]:
    return lambda: small_bundle(document=manifest(**changes)).data()


def raw_manifest(data: bytes) -> Callable[[], bytes]:
    return lambda: small_bundle().replace(bundles.MANIFEST, file(bundles.MANIFEST, data)).data()


def with_records(records: bytes, entry: Entry | None = None, **fields: bytes) -> Callable[[], bytes]:
    """The small bundle and a member behind an extended header."""
    place = entry or file("share/x", b"x")
    return lambda: small_bundle().add(Entry(**{**vars(place), "before": extended(records, **fields)})).data()


def cut(size: int) -> Callable[[], bytes]:
    """The small bundle's tar cut off after so many bytes, in a right gzip."""
    return lambda: gzip(small_bundle().tar()[:size])


def edited(edit: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    """The small bundle's packed bytes, edited."""
    return lambda: edit(small_bundle().data())


CONTENTS_END = len(b"".join(member.blocks() for member in small_bundle().members))
