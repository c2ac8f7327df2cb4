"""What a bundle is made of: components, files, licences, as CycloneDX 1.6 JSON.

Format: https://cyclonedx.org/docs/1.6/json/. docs/sbom.md says what is in the document, docs/licences.md
where the licence texts come from.
"""

from .checks import check_files, check_sbom
from .document import component_versions
from .outer import outer_sbom
from .own import FILE_NAME, NATIVE, native_version
from .tree import describe_tree

__all__ = [
    "FILE_NAME",
    "NATIVE",
    "check_files",
    "check_sbom",
    "component_versions",
    "describe_tree",
    "native_version",
    "outer_sbom",
]
