"""The project's own part of a bundle: its tools, and the files that it writes."""

from __future__ import annotations

import re
from typing import Final

from ..resources import native_dir
from ..runtime.errors import ContractError
from ..runtime.manifest import FILE_NAME as MANIFEST

NATIVE: Final = "native"
"""The component that the capsule's own tools (capsule-exec, seal-tree) are listed as."""
LICENCE: Final = "Apache-2.0"
SUPPLIER: Final = "capsule-build"
FILE_NAME: Final = "share/sbom.cdx.json"
"""The one file that an SBOM can't list."""
LICENCES: Final = "share/licenses"
NOTICE: Final = f"{LICENCES}/NOTICE.txt"

NATIVE_FILES: Final = ("bin", "libexec/shebang-exec", "abi/etc")
"""Other components in bin/ name their files: what is left are the launcher, the sealer and exec wrappers."""

ROOT_FILES: Final = (MANIFEST, NOTICE)
"""What belongs to the bundle as a whole."""


def native_version() -> str:
    """Return the version of the capsule's own tools, as their sources say it.

    Raises:
        ContractError: They don't.
    """
    header = (native_dir() / "version.h").read_text(encoding="utf-8")
    found = re.search(r'#define\s+CAPSULE_NATIVE_VERSION\s+"([^"]+)"', header)
    if not found:
        raise ContractError("native/version.h defines no CAPSULE_NATIVE_VERSION.")
    return found.group(1)
