"""What a bundle is made of: components, files, licences, as CycloneDX 1.6 JSON.

Format: https://cyclonedx.org/docs/1.6/json/. docs/sbom.md says what is in the document, docs/licences.md
where the licence texts come from.
"""

from .checks import check_files, check_sbom
from .document import component_versions
from .outer import outer_sbom
from .own import FILE_NAME, NATIVE, native_version
from .tasks import TaskBundle, check_task_sbom, make_task_sbom
from .tree import describe_tree
from .used import used_distributions, used_npm_packages

__all__ = [
    "FILE_NAME",
    "NATIVE",
    "TaskBundle",
    "check_files",
    "check_sbom",
    "check_task_sbom",
    "component_versions",
    "describe_tree",
    "make_task_sbom",
    "native_version",
    "outer_sbom",
    "used_distributions",
    "used_npm_packages",
]
