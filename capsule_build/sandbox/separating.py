"""What a guest's memory begins with, taken out of its WebAssembly: the code without it, and an image.

Wasmtime fills a memory that the host has made (`memory`) by copying, which takes longer than a whole task
where there are 27 MB of it. Memories that are mapped from a file begin with the same content at no cost.

Formats: sections 5.5.2 and 5.5.14 of the WebAssembly core specification (version 2.0); a component's
preamble and sections are those of `Binary.md` of the component model.
"""

from __future__ import annotations

from .records import Record
from .wasmtime_abi import WasmError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

PAGE_BYTES: Final = 64 << 10
"""Of WebAssembly: memories have a whole number of these."""

MAX_IMAGE_BYTES: Final = 256 << 20

_PREAMBLE_BYTES: Final = 8
_MODULE: Final = b"\1\0\0\0"
_CORE_MODULE, _COMPONENT = 1, 4  # sections of a component
_MEMORY, _DATA, _DATA_COUNT = 5, 11, 12  # sections of a module
_ACTIVE: Final = 0
_I32_CONST, _END = 0x41, 0x0B


class Separated(Record):
    """A guest in two pieces.

    Attributes:
        code: The component, whose memory begins with zeros.
        image: What its memory begins with, in whole pages of WebAssembly. What follows is zeros.
    """

    code: bytes
    image: bytes


def separate(component: bytes) -> Separated:
    """Take the data out of the one module of a component that has a memory and data for it.

    Raises:
        WasmError: There are several such modules, or the data isn't where it is said to be once and for all.
    """
    images: list[bytes] = []
    try:
        code = _without_data(component, images)
    except IndexError:
        raise WasmError("The guest isn't whole.") from None
    if len(images) > 1:
        raise WasmError("The guest has several memories with data.")
    return Separated(code, images[0] if images else b"")


def _without_data(binary: bytes, images: list[bytes]) -> bytes:
    parts = [binary[:_PREAMBLE_BYTES]]
    for kind, section, content in _sections(binary):
        if kind == _COMPONENT:
            parts.append(_section(kind, _without_data(content, images)))
        elif kind == _CORE_MODULE:
            parts.append(_section(kind, _module_without_data(content, images)))
        else:
            parts.append(section)
    return b"".join(parts)


def _module_without_data(module: bytes, images: list[bytes]) -> bytes:
    if module[4:_PREAMBLE_BYTES] != _MODULE:
        raise WasmError("The guest has a module of a version that isn't known.")
    sections = list(_sections(module))
    kinds = {kind for kind, _, content in sections if content != b"\0"}
    if not {_MEMORY, _DATA} <= kinds:
        return module
    if _DATA_COUNT in kinds:
        raise WasmError("The guest's code asks for data of its memory's module.")
    (data,) = (content for kind, _, content in sections if kind == _DATA)
    images.append(_image(data))
    return module[:_PREAMBLE_BYTES] + b"".join(section for kind, section, _ in sections if kind != _DATA)


def _image(data: bytes) -> bytes:
    image = bytearray()
    count, at = _unsigned(data, 0)
    for _ in range(count):
        if data[at] != _ACTIVE or data[at + 1] != _I32_CONST:
            raise WasmError("The guest has data whose place in the memory isn't fixed.")
        offset, at = _signed(data, at + 2)
        size, start = _unsigned(data, at + 1)
        if data[at] != _END or start + size > len(data):
            raise WasmError("The guest has data that can't be read.")
        offset, at = offset & 0xFFFFFFFF, start + size
        if offset + size > MAX_IMAGE_BYTES:
            raise WasmError(f"The guest's data needs more than {MAX_IMAGE_BYTES} bytes of memory.")
        if len(image) < offset + size:
            image.extend(bytes(-(-(offset + size) // PAGE_BYTES) * PAGE_BYTES - len(image)))
        image[offset : offset + size] = data[start:at]
    return bytes(image)


def _sections(binary: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield each section: its kind, the whole of it, and its content."""
    at = _PREAMBLE_BYTES
    while at < len(binary):
        size, start = _unsigned(binary, at + 1)
        if start + size > len(binary):
            raise WasmError("The guest isn't whole.")
        yield binary[at], binary[at : start + size], binary[start : start + size]
        at = start + size


def _section(kind: int, content: bytes) -> bytes:
    size, encoded = len(content), bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((kind, *encoded, size)) + content


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of LEB128 that stands at an index, and the index behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    start = at
    value, at = _unsigned(data, at)
    return value - (1 << 7 * (at - start) if data[at - 1] & 0x40 else 0), at
