"""What isn't linked is used as it is."""

from __future__ import annotations

from ..wasmtime_abi import WasmError


class LinkError(WasmError):
    """A component has something that this program doesn't link. It says what."""
