"""The order of Debian version numbers (Debian Policy 5.6.12, deb-version(7)).

A version is `[epoch:]upstream[-revision]`. Each of the last two is read as runs of other characters and of
digits in turn. Digits compare as numbers. Of the others a tilde comes before everything, even the end; then
the end; then letters; then the rest.
"""

from __future__ import annotations

import re
from typing import Final

from ..runtime.errors import InputError

Key = tuple[int, tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[tuple[int, ...], int], ...]]

_RUN: Final = re.compile(r"([^0-9]*)([0-9]*)")
_VALID: Final = re.compile(r"(?:[0-9]+:)?[0-9A-Za-z.+~:-]+")
_END: Final = ((0,), 0)


def sort_key(version: str) -> Key:
    """Return what sorts as `dpkg --compare-versions` does.

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
    return (int(epoch), _runs(upstream), _runs(revision))


def _runs(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    runs = [
        ((*map(_order, others), 0), int(digits or "0"))
        for others, digits in _RUN.findall(text)
        if others or digits
    ]
    # A missing part counts as an empty one, and an empty one as 0: "1", "1-" and "1-0" are the same.
    while runs and runs[-1] == _END:
        runs.pop()
    return (*runs, _END)


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
