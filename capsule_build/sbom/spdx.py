"""SPDX licence expressions (https://spdx.github.io/spdx-spec/v2.3/SPDX-license-expressions/).

The list of licences is the one that the library for expressions carries.
"""

from __future__ import annotations

import functools
import re
from typing import Final

from license_expression import (
    LicenseSymbol,
    LicenseWithExceptionSymbol,
    Licensing,
    get_spdx_licensing,
)

_MAX_CHARACTERS: Final = 1024
# `LicenseRef-` names a licence that isn't on the list; a document may define what it means.
_OWN: Final = re.compile(r"(?:DocumentRef-[A-Za-z0-9.-]+:)?LicenseRef-[A-Za-z0-9.-]+")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:-]*")


def normalised(text: str) -> str | None:
    """Return an expression in its normal spelling, without needless brackets; `None`: it isn't one.

    `(mit OR Apache-2.0)` becomes `MIT OR Apache-2.0`.
    """
    found = _parsed(text)
    return None if found is None else found[0]


def licences(expression: str) -> tuple[str, ...]:
    """Return what a valid expression is made of: each licence, and each exception, once, in its order.

    Raises:
        ValueError: It isn't a valid expression.
    """
    found = _parsed(expression)
    if found is None:
        raise ValueError(expression)
    return found[1]


@functools.cache
def _parsed(text: str) -> tuple[str, tuple[str, ...]] | None:
    if not text.isascii() or len(text) > _MAX_CHARACTERS:
        return None
    try:
        parsed = _licensing(_own_names(text)).parse(text, validate=True, strict=True)
    except (
        Exception
    ):  # what isn't an expression fails in any way: `()` with an IndexError, 500 brackets by depth
        return None
    if parsed is None:
        return None
    names: dict[str, None] = {}
    for symbol in parsed.get_symbols():
        if isinstance(symbol, LicenseWithExceptionSymbol):
            names.update({symbol.license_symbol.key: None, symbol.exception_symbol.key: None})
        else:
            names[symbol.key] = None
    return str(parsed.render()), tuple(names)


def _own_names(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(text) if _OWN.fullmatch(word))


@functools.cache
def _licensing(own: frozenset[str]) -> Licensing:
    listed = get_spdx_licensing()
    if not own:
        return listed
    return Licensing([*listed.known_symbols.values(), *(LicenseSymbol(name) for name in sorted(own))])
