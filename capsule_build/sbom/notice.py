"""The notice: every component with its licence, its texts and, where that is asked for, its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..runtime.errors import ContractError
from .own import LICENCES, NOTICE
from .texts import FROM_LIST, MISSING, own_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from .parts import Part

_HEAD: Final = """This bundle holds the components below, each under its own licence. Their texts lie in the
folders beside this file.

Where a licence asks for the source, "source" names it by its package URL: a Debian or Alpine package of that
version, a repository's tag, or a source distribution. The scripts by which a bundle is made are part of the
project capsule-build.
"""


def add_notice(tree: Path, parts: Iterable[Part]) -> None:
    """Write the notice.

    Raises:
        ContractError: A component whose licence asks for its source says no source.
    """
    blocks = ["\n".join(_block(tree, part)) for part in parts]
    (tree / NOTICE).write_text("\n\n".join([_HEAD, *blocks]) + "\n", encoding="utf-8")


def _block(tree: Path, part: Part) -> Iterator[str]:
    if part.licence.asks_for_source and not part.sources:
        raise ContractError(
            f"{part.name} {part.version} is under {part.licence.label}, but nothing says where its source "
            "is.",
            hint="Say it as a package URL in components.toml ('source').",
        )
    yield f"{part.name} {part.version}" + (f" ({part.title})" if part.title else "")
    yield f"    licence: {part.licence.label}"
    folder = tree / LICENCES / part.folder
    for name in own_texts(folder):
        remark = " (the SPDX list's: it came without its own)" if name.startswith(FROM_LIST) else ""
        yield f"    text:    {part.folder}/{name}{remark}"
    if (folder / MISSING).is_file():
        yield f"    missing: {part.folder}/{MISSING} says what"
    for url in part.sources:
        yield f"    source:  {url}"
