"""What WebAssembly's binary formats are made of: numbers, names, vectors, sections.

Formats: chapter 5 of the WebAssembly core specification (version 2.0); `Binary.md` of the component model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..wasmtime_abi import WasmError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREAMBLE_BYTES: Final = 8
MODULE_PREAMBLE: Final = b"\0asm\1\0\0\0"
CUSTOM_SECTION: Final = 0


class Reader:
    """Reads what lies one behind the other.

    Attributes:
        data: All of it.
        at: Where the next begins.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            WasmError: There are fewer.
        """
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise WasmError("The guest isn't whole.")
        return self.data[start : self.at]

    def byte(self) -> int:
        """Return the next byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """Return an unsigned number, in LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        """Return a signed number, in LEB128."""
        start = self.at
        value = self.number()
        return value - (1 << 7 * (self.at - start) if self.data[self.at - 1] & 0x40 else 0)

    def name(self) -> bytes:
        """Return a name, or whatever else has its size before it."""
        return self.take(self.number())

    def times(self) -> range:
        """Return what goes over a vector, whose items are to be read in it."""
        return range(self.number())

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.data)


def number(value: int) -> bytes:
    """Return an unsigned number in LEB128."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def signed(value: int) -> bytes:
    """Return a signed number in LEB128."""
    encoded = bytearray()
    while not -0x40 <= value < 0x40:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value & 0x7F)
    return bytes(encoded)


def sized(content: bytes) -> bytes:
    """Return bytes behind their size: so a name is written, or a function's body."""
    return number(len(content)) + content


def vector(items: Iterable[bytes]) -> bytes:
    """Return a vector of items that are encoded."""
    encoded = list(items)
    return number(len(encoded)) + b"".join(encoded)


def section(kind: int, content: bytes) -> bytes:
    """Return a section."""
    return bytes((kind,)) + sized(content)


def sections(binary: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the content of each section of a module or component.

    Raises:
        WasmError: It isn't whole.
    """
    reader = Reader(binary, PREAMBLE_BYTES)
    while not reader.is_at_end:
        yield reader.byte(), reader.name()
