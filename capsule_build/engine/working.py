"""The containers that a Podman build works in, told from those of all other builds.

Podman knows them as "external": they are buildah's, and the API says neither who made one nor what for. A
name, a time or "it wasn't there before" could be another build's in the same storage. So a build carries a
mark: a DNS search domain with a random name, which nothing reads, for the build has no network and thus no
resolv.conf. buildah writes it into each container's state, `userdata/buildah.json` (seen with 1.28).
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .protocol import EngineInfo

_STATE: Final = "userdata/buildah.json"
_HALF_MADE_SECONDS: Final = 5.0
"""A container is there before its state is: by milliseconds, more on a busy machine."""


class WorkingContainers:
    """Those of one build.

    Args:
        info: The engine that builds. Nothing is found where its storage isn't on this machine, or isn't this
            user's to read.
    """

    def __init__(self, info: EngineInfo) -> None:
        self._mark = f"capsule-build-{uuid.uuid4().hex}.invalid"
        self._folder = Path(info.storage_root) / f"{info.storage_driver}-containers"

    def parameters(self) -> Mapping[str, str]:
        """Return the parameters of the API's build call that put the mark on."""
        return {"dnssearch": json.dumps([self._mark])}

    def found(self) -> list[str]:
        """Return the ids of those that are there now."""
        return sorted(folder.name for folder in self._folders() if self._is_marked(folder / _STATE))

    def are_whole(self) -> bool:
        """Return whether no container is half made, so that its mark may still be missing."""
        now = time.time()
        return not any(
            not (folder / _STATE).exists() and now - _changed(folder) < _HALF_MADE_SECONDS
            for folder in self._folders()
        )

    def _folders(self) -> Iterator[Path]:
        try:
            yield from (path for path in self._folder.iterdir() if path.is_dir())
        except OSError:
            return

    def _is_marked(self, state: Path) -> bool:
        try:
            said = json.loads(state.read_bytes())
            return self._mark in (said["CommonBuildOpts"]["DNSSearch"] or [])
        except (OSError, ValueError, KeyError, TypeError):
            # Removed in this moment, or another program's container.
            return False


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
