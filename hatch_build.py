"""Puts the guests of task capsules into a wheel, ready; hatchling calls it.

An editable install has none: it makes one at its first use.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GuestHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Makes the guests, and refuses one that isn't the recorded one: a wheel's bytes are no accident."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the guests and add them to what the wheel holds."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from capsule_build.sandbox import making as python
        from capsule_build.sandbox.guest import PREBUILT, RECORD
        from capsule_build.sandbox.javascript import making as javascript

        self._folder = tempfile.TemporaryDirectory()
        for folder, making in (("guest", python), ("guest/js", javascript)):
            wasm = making.make_guest(need_compiler=True)
            digest = hashlib.sha256(wasm).hexdigest()
            if digest != making.recorded_digest():
                raise RuntimeError(f"The guest has the SHA-256 {digest}; {folder}/{RECORD} records another.")
            path = Path(self._folder.name, folder, PREBUILT)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wasm)
            build_data["force_include"][str(path)] = f"capsule_build/_data/{folder}/{PREBUILT}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the wheel."""
        if version != "editable":
            self._folder.cleanup()
