"""The licences of a bundle's components, with their texts and where their source is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .runtime.archive import BundleInfo, Kind, open_bundle
from .runtime.errors import ContractError
from .sbom.reading import Listed, read_components

if TYPE_CHECKING:
    from pathlib import Path

LICENCES_SCHEMA: Final = "capsule-build.licenses.v1"


@dataclass(frozen=True)
class LicenceReport:
    """What a bundle's SBOM says of licences; the texts that it names are in the bundle."""

    info: BundleInfo
    components: tuple[Listed, ...]

    def to_json(self) -> dict[str, object]:
        """Return all of it as JSON values, in the format that `LICENCES_SCHEMA` names."""
        return {
            "schema_version": LICENCES_SCHEMA,
            "sha256": self.info.sha256,
            "components": [
                {
                    "name": part.name,
                    "version": part.version,
                    "licenses": list(part.licenses),
                    "texts": list(part.texts),
                    "texts_are": part.remark or "own",
                    "sources": list(part.sources),
                }
                for part in self.components
            ],
        }


def read_licences(path: Path) -> LicenceReport:
    """Read the licences of a bundle, and check its contract while doing so.

    Raises:
        UsageError: The file can't be read.
        ContractError: The bundle breaks its contract, its SBOM isn't CycloneDX, or a text that it
            names isn't there.
    """
    with open_bundle(path) as reader:
        files = {member.name for member, _ in reader if member.kind is Kind.FILE}
        components = read_components(reader.sbom)
        for part in components:
            if absent := sorted(set(part.texts) - files):
                raise ContractError(
                    f"The SBOM's component '{part.name}' has a licence text {absent[0]!a} that isn't there."
                )
        return LicenceReport(reader.info, components)
