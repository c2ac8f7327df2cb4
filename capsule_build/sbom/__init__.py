"""What a bundle is made of: components, files, licences, as CycloneDX 1.6 JSON.

Format: https://cyclonedx.org/docs/1.6/json/. docs/sbom.md says what is in the document and why.
"""

from .checks import check_sbom
from .document import FILE_NAME, NATIVE, component_versions, make_sbom, native_version
from .outer import outer_sbom

__all__ = [
    "FILE_NAME",
    "NATIVE",
    "check_sbom",
    "component_versions",
    "make_sbom",
    "native_version",
    "outer_sbom",
]
