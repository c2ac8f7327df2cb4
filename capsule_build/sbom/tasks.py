"""The SBOM of a task bundle: the files that it was packed from, their packages, and its guest.

As CycloneDX 1.6 JSON, like the SBOM beside a runtime capsule's bundle. The same bundle has the same SBOM: no
time is in it, and its serial number follows from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..runtime.errors import ContractError
from .checks import check_document, check_files
from .own import SUPPLIER
from .writing import CAPSULE, as_bytes, read_document, with_serial_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .packages import Package


@dataclass(frozen=True)
class TaskBundle:
    """What an SBOM says of the bundle itself.

    Attributes:
        filename: Its file name.
        sha256: Its digest.
        size: Its bytes.
        version: The workflow's version; `None`: it has none.
        entry: The task that a run begins with.
        policy_sha256: The digest of what its tasks are granted.
        language: The language of its guest.
        guest_sha256: The digest of its guest.
    """

    filename: str
    sha256: str
    size: int
    version: str | None
    entry: str
    policy_sha256: str
    language: str
    guest_sha256: str


def make_task_sbom(
    bundle: TaskBundle, files: Mapping[str, str], packages: Iterable[tuple[Package, Iterable[str]]]
) -> bytes:
    """Return the SBOM of a task bundle.

    Args:
        bundle: The bundle.
        files: The SHA-256 of each file that it was packed from, by its name.
        packages: The packages that some of them are of, each with the names of those.

    Raises:
        ContractError: What a package says of itself can't be in an SBOM.
    """
    left = dict(files)
    components: dict[str, dict[str, Any]] = {}
    for package, names in packages:
        # Two copies of one version are one component.
        component = components.setdefault(package.purl.to_string(), _package(package))
        component["components"] += [_file(name, left.pop(name)) for name in sorted(names)]
    reference, guest = f"{CAPSULE}:task/{bundle.filename}", f"{CAPSULE}:guest/{bundle.language}"
    root: dict[str, Any] = {
        "type": "application",
        "bom-ref": reference,
        "name": bundle.filename.rpartition(".")[0],
        "hashes": [_hash(bundle.sha256)],
        "properties": [
            {"name": f"{CAPSULE}:{name}", "value": value}
            for name, value in (
                ("entry", bundle.entry),
                ("filename", bundle.filename),
                ("platform", "wasm32"),
                ("policy-sha256", bundle.policy_sha256),
                ("size", str(bundle.size)),
            )
        ],
        "components": [_file(name, digest) for name, digest in sorted(left.items())],
    }
    if bundle.version is not None:
        root["version"] = bundle.version
    needed = {
        "type": "platform",
        "bom-ref": guest,
        "name": f"{SUPPLIER} guest for {bundle.language}",
        "supplier": {"name": SUPPLIER},
        "hashes": [_hash(bundle.guest_sha256)],
        "description": "What the tasks run in. It isn't in the bundle: whoever runs that has it.",
    }
    refs = sorted([*components, guest])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "authors": [{"name": SUPPLIER}],
            "lifecycles": [{"phase": "build"}],
            "component": root,
        },
        "components": [*(components[ref] for ref in sorted(components)), needed],
        "dependencies": [{"ref": reference, "dependsOn": refs}, *({"ref": ref} for ref in refs)],
        "compositions": [{"aggregate": "complete", "assemblies": [reference]}],
    }
    # What packages say of themselves could be anything.
    check_document(document)
    return as_bytes(with_serial_number(document))


def check_task_sbom(sbom: bytes, sha256: str, files: Mapping[str, str]) -> None:
    """Hold an SBOM against a task bundle.

    Args:
        sbom: The SBOM.
        sha256: The bundle's digest.
        files: The SHA-256 of each file that it was packed from, by its name.

    Raises:
        ContractError: It is about another bundle, or lists other files.
    """
    root = read_document(sbom)["metadata"]["component"]
    if root.get("hashes") != [_hash(sha256)]:
        raise ContractError(f"The SBOM isn't about the task bundle with the SHA-256 {sha256}.")
    check_files(sbom, files)


def _package(package: Package) -> dict[str, Any]:
    purl = package.purl.to_string()
    said: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
        "components": [],
    }
    if package.author:
        said["authors"] = [{"name": package.author}]
    if package.licence.expression:
        said["licenses"] = [{"expression": package.licence.expression}]
    elif package.licence.name:
        said["licenses"] = [{"license": {"name": package.licence.name}}]
    return said


def _file(name: str, sha256: str) -> dict[str, Any]:
    return {"type": "file", "name": name, "hashes": [_hash(sha256)]}


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}
