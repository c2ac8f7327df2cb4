"""Function bodies whose functions, globals, types and tables get other numbers.

Instructions that name none of these are passed over by one regular expression: there are millions of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .binary import Reader, number, signed
from .errors import LinkError
from .modules import value_type

_BLOCKS = (0x02, 0x03, 0x04)
_CALLS = (0x10, 0x12, 0xD2)  # call, return_call, ref.func
_INDIRECT_CALLS = (0x11, 0x13)
_GLOBALS = (0x23, 0x24)
_TABLE_OF_BRANCHES = 0x0E

_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
# An alignment of 64 or more would say that the index of a memory follows.
_ADDRESS = rb"[\x00-\x3f]" + _NUMBER
_VALUE_TYPE = rb"[\x7f\x7e\x7d\x7c\x7b\x70\x6f]"
_OTHERS: Final = re.compile(
    rb"(?:"
    rb"[\x00\x01\x05\x0b\x0f\x1a\x1b\x45-\xc4\xd1]+"  # nothing behind the code
    rb"|[\x0c\x0d\x20-\x22\x41\x42]" + _NUMBER +  # labels, locals, whole constants
    rb"|[\x28-\x3e]" + _ADDRESS +  # loads and stores
    rb"|[\x02-\x04](?:\x40|" + _VALUE_TYPE + rb")"  # blocks of no type, or one value's
    rb"|\x43[\x00-\xff]{4}|\x44[\x00-\xff]{8}"  # broken constants
    rb"|[\x3f\x40]\x00"  # the one memory's size and growth
    rb"|\x1c\x01" + _VALUE_TYPE +  # a choice of a type
    rb"|\xd0[\x70\x6f]"  # null
    rb"|\xfc(?:[\x00-\x07]|\x0a\x00\x00|\x0b\x00)"  # saturating conversions, copying and filling
    rb"|\xfd(?:"  # vectors:
    rb"(?:[\x00-\x0b]|[\x5c\x5d])" + _ADDRESS +  # loads and stores
    rb"|[\x0c\x0d][\x00-\xff]{16}"  # constants and shuffles
    rb"|[\x15-\x22][\x00-\xff]"  # one lane
    rb"|[\x54-\x5b]" + _ADDRESS + rb"[\x00-\xff]"  # one lane, from or to memory
    rb"|[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff][\x01\x02])"  # nothing behind the code
    rb")*+"
)  # fmt: skip


@dataclass(frozen=True)
class Numbers:
    """The new numbers, encoded, by the old ones."""

    functions: list[bytes]
    globals: list[bytes]
    tables: list[bytes]
    types: list[int]


def renumbered(body: bytes, numbers: Numbers) -> bytes:
    """Return a body with other numbers.

    Raises:
        LinkError: It has an instruction that isn't known here.
    """
    reader = Reader(body)
    for _ in reader.times():
        reader.number()
        value_type(reader)
    parts = [body[: reader.at]]
    while True:
        match = _OTHERS.match(body, reader.at)
        stop = reader.at if match is None else match.end()
        parts.append(body[reader.at : stop])
        if stop == len(body):
            return b"".join(parts)
        reader.at = stop
        parts.append(_instruction(reader, numbers))


def _instruction(reader: Reader, numbers: Numbers) -> bytes:
    start = reader.at
    code = reader.byte()
    head = bytes((code,))
    try:
        if code in _CALLS:
            return head + numbers.functions[reader.number()]
        if code in _GLOBALS:
            return head + numbers.globals[reader.number()]
        if code in _INDIRECT_CALLS:
            return head + number(numbers.types[reader.number()]) + numbers.tables[reader.number()]
        if code in _BLOCKS and (kind := reader.signed()) >= 0:
            return head + signed(numbers.types[kind])
    except IndexError:
        raise LinkError("code that names what isn't there") from None
    if code == _TABLE_OF_BRANCHES:
        for _ in range(reader.number() + 1):
            reader.number()
        return reader.data[start : reader.at]
    raise LinkError(f"an instruction {reader.data[start : start + 3].hex()}")
