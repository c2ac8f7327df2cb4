"""What upstream linked into a component, by the versions that its own headers say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import spdx
from .packages import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..recipes import Contained


def contained_parts(tree: Path, contained: Iterable[Contained]) -> dict[str, list[dict[str, Any]]]:
    """Return what components contain, as CycloneDX components, by the components' names.

    Somebody's own build of a runtime may have other libraries than upstream's, and no header of them: only
    what a file says is listed.

    Args:
        tree: The finished tree.
        contained: What the recipe looks for.

    Raises:
        ContractError: A file that should say a version can't be read.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for item in contained:
        version = _version(tree, item)
        if version is None:
            continue
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": f"{item.inside}/{item.name}",
            "name": item.name,
            "version": version,
            "licenses": [{"expression": spdx.normalised(item.license) or item.license}],
        }
        if item.cpe:
            component["cpe"] = item.cpe.replace("{version}", version)
        found.setdefault(item.inside, []).append(component)
    return found


def _version(tree: Path, item: Contained) -> str | None:
    for path in sorted(tree.glob(item.version_file)):
        match = re.search(item.version_pattern, read_text(tree, path.relative_to(tree).as_posix()), re.DOTALL)
        if match:
            return ".".join(match.groups())
    return None
