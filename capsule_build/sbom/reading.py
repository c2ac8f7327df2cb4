"""What an SBOM says of a bundle's components, read from the document alone: the bundle may be anybody's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..runtime.errors import ContractError
from .own import LICENCES
from .texts import MISSING
from .writing import CAPSULE, TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE: Final = "source-distribution"


@dataclass(frozen=True)
class Listed:
    """A component that an SBOM lists.

    Attributes:
        ref: Its bom-ref; empty: it has none.
        name: Its name.
        version: Its version; may be empty.
        licenses: Its licences: SPDX expressions, or names.
        texts: Its licence texts: paths in the bundle.
        sources: Where its source is: package URLs.
        remark: `spdx-list` where the texts are the SPDX list's, since it came without its own; `incomplete`
            where texts of what it contains are missing; else empty.
    """

    ref: str
    name: str
    version: str
    licenses: tuple[str, ...]
    texts: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    remark: str = ""

    @property
    def came_along(self) -> bool:
        """Whether it is a package that came inside another component."""
        return self.ref.startswith("pkg:")


def read_components(document: Mapping[str, object]) -> tuple[Listed, ...]:
    """Return the components of a CycloneDX document, sorted by name.

    Format: CycloneDX 1.6, JSON: `components`, each with `name`, `version` and `licenses`, and files in it.

    Raises:
        ContractError: It isn't such a document.
    """
    if document.get("bomFormat") != "CycloneDX" or document.get("specVersion") != "1.6":
        raise ContractError("The SBOM isn't a CycloneDX 1.6 document.")
    components = document.get("components", [])
    if not isinstance(components, list):
        raise ContractError("The SBOM's 'components' is not a list.")
    return tuple(sorted(map(_listed, components), key=lambda part: (part.name, part.version, part.ref)))


def _listed(entry: object) -> Listed:
    if not isinstance(entry, dict):
        raise ContractError("The SBOM lists a component that is not an object.")
    name, version, licenses = entry.get("name"), entry.get("version", ""), entry.get("licenses", [])
    if not isinstance(name, str) or not isinstance(version, str) or not isinstance(licenses, list):
        raise ContractError(f"The SBOM's component {name!a} has no usable name, version or licences.")
    ref = entry.get("bom-ref", "")
    if not isinstance(ref, str):
        raise ContractError(f"The SBOM's component {name!a} has a bom-ref that is not text.")
    files = [_text(name, item, "name") for item in _objects(name, entry.get("components"))]
    return Listed(
        ref=ref,
        name=name,
        version=version,
        licenses=tuple(_license(name, choice) for choice in licenses),
        texts=tuple(
            sorted(file for file in files if file.startswith(f"{LICENCES}/") and _base(file) != MISSING)
        ),
        sources=tuple(
            _text(name, item, "url")
            for item in _objects(name, entry.get("externalReferences"))
            if item.get("type") == _SOURCE
        ),
        remark=next(
            (
                _text(name, item, "value")
                for item in _objects(name, entry.get("properties"))
                if item.get("name") == f"{CAPSULE}:{TEXTS}"
            ),
            "",
        ),
    )


def _license(name: str, choice: object) -> str:
    """Return what a licence choice says: an SPDX expression, an SPDX id, or a name."""
    if isinstance(choice, dict):
        named = choice.get("license")
        texts = [choice.get("expression")]
        texts += [named.get("id"), named.get("name")] if isinstance(named, dict) else []
        for text in texts:
            if isinstance(text, str) and text:
                return text
    raise ContractError(f"The SBOM's component '{name}' has a licence without expression, id or name.")


def _objects(name: str, value: object) -> list[dict[str, object]]:
    entries = [] if value is None else value
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ContractError(f"The SBOM's component '{name}' has a list of something other than objects.")
    return entries


def _text(name: str, item: Mapping[str, object], key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise ContractError(f"The SBOM's component '{name}' has an entry without a {key}.")
    return value


def _base(path: str) -> str:
    return path.rpartition("/")[2]
