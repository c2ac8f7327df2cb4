"""What a guest's memory begins with, taken out of its WebAssembly: the code without it, and an image.

Wasmtime fills a memory that the host has made (`sandbox.memory`) by copying, which takes longer than a whole
task where there are 27 MB of it. Memories that are mapped from a file begin with the same content at no cost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..wasmtime_abi import WasmError
from .binary import MODULE_PREAMBLE, PREAMBLE_BYTES, Reader, section, sections

PAGE_BYTES: Final = 64 << 10
"""Of WebAssembly: memories have a whole number of these."""

MAX_IMAGE_BYTES: Final = 256 << 20

_CORE_MODULE, _COMPONENT = 1, 4  # sections of a component
_MEMORY, _DATA, _DATA_COUNT = 5, 11, 12  # sections of a module
_NOTHING: Final = b"\0"
_ACTIVE: Final = 0
_I32_CONST, _END = 0x41, 0x0B


class Separated(NamedTuple):
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
    code = _without_data(component, images)
    if len(images) > 1:
        raise WasmError("The guest has several memories with data.")
    return Separated(code, images[0] if images else b"")


def _without_data(binary: bytes, images: list[bytes]) -> bytes:
    parts = [binary[:PREAMBLE_BYTES]]
    for kind, content in sections(binary):
        if kind == _COMPONENT:
            parts.append(section(kind, _without_data(content, images)))
        elif kind == _CORE_MODULE:
            parts.append(section(kind, _module_without_data(content, images)))
        else:
            parts.append(section(kind, content))
    return b"".join(parts)


def _module_without_data(module: bytes, images: list[bytes]) -> bytes:
    if module[:PREAMBLE_BYTES] != MODULE_PREAMBLE:
        raise WasmError("The guest has a module of a version that isn't known.")
    found = list(sections(module))
    kinds = {kind for kind, content in found if content != _NOTHING}
    if not {_MEMORY, _DATA} <= kinds:
        return module
    if _DATA_COUNT in kinds:
        raise WasmError("The guest's code asks for data of its memory's module.")
    images.append(_image([content for kind, content in found if kind == _DATA]))
    return MODULE_PREAMBLE + b"".join(section(kind, content) for kind, content in found if kind != _DATA)


def _image(of_data: list[bytes]) -> bytes:
    image = bytearray()
    for content in of_data:
        reader = Reader(content)
        for _ in reader.times():
            if reader.byte() != _ACTIVE or reader.byte() != _I32_CONST:
                raise WasmError("The guest has data whose place in the memory isn't fixed.")
            offset = reader.signed() & 0xFFFFFFFF
            if reader.byte() != _END:
                raise WasmError("The guest has data that can't be read.")
            data = reader.name()
            end = offset + len(data)
            if end > MAX_IMAGE_BYTES:
                raise WasmError(f"The guest's data needs more than {MAX_IMAGE_BYTES} bytes of memory.")
            if len(image) < end:
                image.extend(bytes(-(-end // PAGE_BYTES) * PAGE_BYTES - len(image)))
            image[offset:end] = data
    return bytes(image)
