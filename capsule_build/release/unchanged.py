"""Whether a bundle that was built again is the one that is there already, with signatures that still hold.

The build took place at another time. That alone is no reason to lose signatures: the old files say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..runtime.errors import CapsuleError
from ..runtime.files import sha256_file
from .outputs import digest_line
from .provenance import make_provenance, read_provenance

if TYPE_CHECKING:
    from .outputs import Outputs
    from .provenance import Provenance

_PACKER: Final = "zlib-ng"


def is_unchanged(outputs: Outputs, *, sha256: str, sbom: bytes, provenance: bytes) -> bool:
    """Return whether signed files that lie beside a bundle say what those of a new build would say.

    That holds where bundle and SBOM have the same bytes, and the provenance is the same but for when, and
    with which engine, the bundle was built.

    Args:
        outputs: What is there.
        sha256: The new bundle's digest.
        sbom: The new SBOM.
        provenance: The new provenance.
    """
    try:
        record, old = outputs.record.read_bytes(), outputs.provenance.read_bytes()
        return (
            outputs.sbom.read_bytes() == sbom
            and outputs.digest.read_bytes() == digest_line(sha256, outputs.bundle.name)
            and make_provenance(record) == old
            and _lasting(read_provenance(old)) == _lasting(read_provenance(provenance))
            and sha256_file(outputs.bundle) == sha256
        )
    except (OSError, CapsuleError):
        # What isn't there, or can't be read, is no set to keep.
        return False


def _lasting(provenance: Provenance) -> tuple[object, ...]:
    """Return what two builds of the same have alike: who built, what, of what, and what packed it."""
    statement, builder = provenance.statement, provenance.builder
    made = statement.predicate["buildDefinition"]
    return (statement.filename, statement.sha256, made, builder.id, builder.version.get(_PACKER))
