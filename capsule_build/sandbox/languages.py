"""The languages that tasks are written in, by the names of their files."""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final

PYTHON: Final = "python"
JAVASCRIPT: Final = "javascript"
PACKED_SUFFIX: Final = ".wasm"

SUFFIXES: Final = {".py": PYTHON, ".js": JAVASCRIPT, ".mjs": JAVASCRIPT, ".ts": JAVASCRIPT}


def language_of(path: str) -> str | None:
    """Return the language of a source file, `None` where it has another name than those have."""
    return SUFFIXES.get(os.path.splitext(path)[1])
