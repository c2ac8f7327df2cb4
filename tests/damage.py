"""Bytes as they are when something has happened to them."""

from __future__ import annotations

from hypothesis import strategies as st


def damaged(data: st.DataObject, whole: bytes) -> bytes:
    """Draw what is left of some bytes: cut short, or not, and with up to three of them changed."""
    changed = bytearray(whole)
    if data.draw(st.booleans()):
        changed = changed[: data.draw(st.integers(0, len(changed)))]
    for _ in range(data.draw(st.integers(0, 3))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    return bytes(changed)
