"""The order of Debian version numbers (Debian Policy 5.6.12, deb-version(7)).

A version is `[epoch:]upstream[-revision]`. Each of the last two is read as runs of other characters and of
digits in turn. Digits compare as numbers. Of the others a tilde comes before everything, even the end; then
the end; then letters; then the rest.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any, Final

from ..runtime.errors import InputError

_Run = tuple[tuple[int, ...], int]
_Version = tuple[int, list[_Run], list[_Run]]

_RUN: Final = re.compile(r"([^0-9]*)([0-9]*)")
_VALID: Final = re.compile(r"(?:[0-9]+:)?[0-9A-Za-z.+~:-]+")
_NOTHING: Final = ((0,), 0)
"""What a version that has ended goes on with: a missing part counts as an empty one, an empty one as 0."""


def sort_key(version: str) -> Any:
    """Return what sorts, and compares, as `dpkg --compare-versions` does.

    Raises:
        InputError: It isn't a Debian version.
    """
    if not _VALID.fullmatch(version):
        raise InputError(f"'{version}' is not a Debian version.")
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    elif not epoch.isdecimal():
        raise InputError(f"'{version}' is not a Debian version: its epoch is not a number.")
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, ""
    return _key((int(epoch), _runs(upstream), _runs(revision)))


@functools.cmp_to_key
def _key(one: _Version, other: _Version) -> int:
    if one[0] != other[0]:
        return one[0] - other[0]
    return _compare(one[1], other[1]) or _compare(one[2], other[2])


def _compare(one: list[_Run], other: list[_Run]) -> int:
    for left, right in itertools.zip_longest(one, other, fillvalue=_NOTHING):
        if left != right:
            return -1 if left < right else 1
    return 0


def _runs(text: str) -> list[_Run]:
    # The 0 behind the other characters is their end: a tilde is less, a letter more.
    return [
        ((*map(_order, others), 0), int(digits or "0"))
        for others, digits in _RUN.findall(text)
        if others or digits
    ]


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
