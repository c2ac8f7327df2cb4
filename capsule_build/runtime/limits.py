"""Bounds on what a bundle may ask of the machine that reads it.

They are far above what a capsule needs (node24 has some 6,000 members and 150 MB) and far below what would
harm: a bundle beyond one of them is refused while it is read, before its bytes are taken.
"""

from __future__ import annotations

from typing import Final

MAX_MEMBERS: Final = 200_000
"""Members of a bundle."""

MAX_LEVELS: Final = 64
"""Components of a member's name."""

MAX_NAME_BYTES: Final = 1024
"""Bytes of a member's name, and of a symlink's target: below PATH_MAX with any install root before it."""

MAX_COMPONENT_BYTES: Final = 255
"""Bytes of one component of a name (Linux's NAME_MAX)."""

MAX_UNPACKED_BYTES: Final = 4 << 30
"""Bytes of the whole tar: contents, headers and padding."""

MAX_EXPANSION: Final = 100
"""Times that the unpacked data may be larger than the packed data."""

EXPANSION_GRACE_BYTES: Final = 16 << 20
"""Unpacked bytes below which the expansion isn't judged: a short tar is mostly zeros."""

MAX_LINK_HOPS: Final = 40
"""Symlinks that one path may lead through: Linux gives up at 40 too."""

MAX_LINK_STEPS: Final = 4_000_000
"""Steps that following all symlinks of a bundle may take together."""

MAX_MANIFEST_BYTES: Final = 64 << 10
"""Bytes of the manifest."""

MAX_SBOM_BYTES: Final = 32 << 20
"""Bytes of the software bill of materials."""
