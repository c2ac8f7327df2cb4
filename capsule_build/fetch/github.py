"""Files of GitHub releases."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Final

from . import http
from .found import Found
from .transfer import NotThereError, UnreachableError

if TYPE_CHECKING:
    from pathlib import Path

    from .transfer import Transfer

ORIGIN: Final = "https://github.com"


def download(
    component: str, repository: str, tag: str, file: str, *, transfer: Transfer, size: int | None = None
) -> Path:
    """Download a file of a release.

    Args:
        component: The component's name, for the hint of an error.
        repository: `owner/name`.
        tag: The release's tag.
        file: The file's name.
        transfer: Where the file goes, and who is told.
        size: Its size in bytes, if that is known.

    Raises:
        NotThereError: The release doesn't have it.
        UnreachableError: GitHub can't be reached.
    """
    path = "/".join(
        urllib.parse.quote(part, safe="/") for part in (repository, "releases/download", tag, file)
    )
    destination = transfer.folder / file
    hint = (
        f"Give your own copy with --source {component}=PATH, or name a folder or URL that has it by digest "
        "with CAPSULE_SOURCE_MIRROR ('capsule-build pins export' makes one)."
    )
    try:
        http.download(f"{ORIGIN}/{path}", destination, transfer=transfer, size=size)
    except (NotThereError, UnreachableError) as error:
        raise type(error)(error.message, hint=hint) from error
    return destination


def expected(version: str, tag: str, pattern: str) -> Found:
    """Return the file that a pattern of `components.toml` means; whether it exists only a download shows."""
    return Found(version, pattern.replace("{version}", version).replace("{tag}", tag), locator=tag)
