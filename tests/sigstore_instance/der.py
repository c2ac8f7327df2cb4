"""As much of DER (X.690) as a timestamp needs."""

from __future__ import annotations


def tlv(tag: int, *contents: bytes) -> bytes:
    """A value with its tag and length."""
    content = b"".join(contents)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def sequence(*contents: bytes) -> bytes:
    return tlv(0x30, *contents)


def set_of(*contents: bytes) -> bytes:
    return tlv(0x31, *sorted(contents))


def tagged(number: int, *contents: bytes) -> bytes:
    """Contents under a constructed context tag."""
    return tlv(0xA0 + number, *contents)


def integer(value: int) -> bytes:
    return tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def octets(data: bytes) -> bytes:
    return tlv(0x04, data)


def utf8(text: str) -> bytes:
    return tlv(0x0C, text.encode())


def oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    encoded = bytes([40 * first + second])
    for number in rest:
        pieces = [number & 0x7F]
        while number := number >> 7:
            pieces.append(0x80 | number & 0x7F)
        encoded += bytes(reversed(pieces))
    return tlv(0x06, encoded)


def read(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """The values that stand one after the other: tag, content, and the whole encoding of each."""
    found = []
    while data:
        length, start = data[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(data[2:start], "big")
        end = start + length
        found.append((data[0], data[start:end], data[:end]))
        data = data[end:]
    return found
