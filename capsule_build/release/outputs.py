"""What lies beside a released bundle: names, and the way in which all of it is written.

The names are the bundle's own with a suffix. A set of files is written wholly or not at all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..record import SUFFIX as RECORD_SUFFIX
from ..runtime.store import SIGNATURE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BUNDLE_SUFFIX: Final = ".tar.gz"
DIGEST_SUFFIX: Final = ".sha256"
SBOM_SUFFIX: Final = ".cdx.json"
PROVENANCE_SUFFIX: Final = ".provenance.json"
PROVENANCE_SIGNATURE_SUFFIX: Final = ".provenance.sigstore.json"
SBOM_SIGNATURE_SUFFIX: Final = ".sbom.sigstore.json"


@dataclass(frozen=True)
class Outputs:
    """The files of a release, by the bundle that they are about.

    Attributes:
        bundle: The bundle's path.
    """

    bundle: Path

    @property
    def record(self) -> Path:
        """The build record: it isn't released, but the provenance is made from it."""
        return self._beside(RECORD_SUFFIX)

    @property
    def digest(self) -> Path:
        """The bundle's SHA-256, in the format of `sha256sum`."""
        return self._beside(DIGEST_SUFFIX)

    @property
    def sbom(self) -> Path:
        """The CycloneDX SBOM with the bundle's digest."""
        return self._beside(SBOM_SUFFIX)

    @property
    def provenance(self) -> Path:
        """The in-toto statement with SLSA provenance."""
        return self._beside(PROVENANCE_SUFFIX)

    @property
    def signature(self) -> Path:
        """The Sigstore bundle with the bundle's signature."""
        return self._beside(SIGNATURE_SUFFIX)

    @property
    def provenance_signature(self) -> Path:
        """The Sigstore bundle with the signed provenance statement."""
        return self._beside(PROVENANCE_SIGNATURE_SUFFIX)

    @property
    def sbom_signature(self) -> Path:
        """The Sigstore bundle with the signed SBOM statement."""
        return self._beside(SBOM_SIGNATURE_SUFFIX)

    @property
    def released(self) -> tuple[Path, ...]:
        """All that is released of a bundle, the bundle first."""
        return (
            self.bundle,
            self.digest,
            self.sbom,
            self.provenance,
            self.signature,
            self.provenance_signature,
            self.sbom_signature,
        )

    def _beside(self, suffix: str) -> Path:
        return self.bundle.with_name(self.bundle.name + suffix)


def digest_line(sha256: str, filename: str) -> bytes:
    """Return what a `.sha256` file holds: the line that `sha256sum --check` reads."""
    return f"{sha256}  {filename}\n".encode()


def publish(files: Mapping[Path, bytes]) -> None:
    """Write all of `files`, or leave the folder as it was.

    Each is written and synced under a temporary name first; then all are renamed. Where a rename fails, those
    before it are taken back.

    Raises:
        OSError: A file can't be written.
    """
    with _scratch_names(files) as staged:
        for path, part in staged.items():
            with part.open("wb") as stream:
                stream.write(files[path])
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
        _rename_all(staged)


@contextlib.contextmanager
def _scratch_names(files: Mapping[Path, bytes]) -> Iterator[dict[Path, Path]]:
    """Yield a temporary name in the folder of each file; what is left of them is removed behind the block."""
    staged: dict[Path, Path] = {}
    try:
        for path in files:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
            os.close(handle)
            staged[path] = Path(name)
        yield staged
    finally:
        for part in staged.values():
            part.unlink(missing_ok=True)


def _rename_all(staged: Mapping[Path, Path]) -> None:
    done: dict[Path, Path | None] = {}
    try:
        for path, part in staged.items():
            old = None
            if path.exists():
                # A second name of the old file, so that it can come back.
                old = part.with_name(part.name + ".old")
                os.link(path, old)
            done[path] = old
            part.replace(path)
    except BaseException:
        for path, old in done.items():
            if old is not None:
                old.replace(path)
                # Renaming one name of a file to another of the same file does nothing (POSIX).
                old.unlink(missing_ok=True)
            elif not staged[path].exists():
                path.unlink(missing_ok=True)
        raise
    for old in done.values():
        if old is not None:
            old.unlink()
