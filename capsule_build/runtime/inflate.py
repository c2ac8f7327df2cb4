"""The fastest inflater that is importable: ISA-L's, zlib-ng's, or else the standard library's.

All three have the interface of the module `zlib`. Which one reads a bundle changes nothing but the time: what
comes out is held against the stored checksum and the digest.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from types import ModuleType

_FASTER: Final = ("isal.isal_zlib", "zlib_ng.zlib_ng")


class Inflater(Protocol):
    """What `zlib.decompressobj` returns."""

    @property
    def eof(self) -> bool:
        """Whether the compressed data has ended."""

    @property
    def unused_data(self) -> bytes:
        """What stands behind its end."""

    @property
    def unconsumed_tail(self) -> bytes:
        """What didn't fit the last call's limit."""

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes:
        """Return what some more packed bytes unpack to."""


@functools.cache
def module() -> ModuleType:
    """Return the module that inflates."""
    for name in _FASTER:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return zlib


def inflater() -> Inflater:
    """Return an object that unpacks raw deflate data (RFC 1951)."""
    found: Any = module()
    made: Inflater = found.decompressobj(-zlib.MAX_WBITS)
    return made


def error() -> type[Exception]:
    """Return the class of errors that the inflater raises."""
    found: type[Exception] = module().error
    return found
