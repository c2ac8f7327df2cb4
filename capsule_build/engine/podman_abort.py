"""How a Podman build that failed or was interrupted is ended, so that nothing of it stays.

Podman's service builds on when nobody listens any more, and its own cleaning isn't enough (seen with Podman
4.3.1, buildah 1.28): when one stage fails, a stage that waited for another may go on behind the answer's end
and make containers that nobody removes; or it panics ("semaphore: released more than held"), and the service
is gone with all its builds. No waiting tells that the last container has been made. So a service that was
started for this build is ended, at a moment when it runs no step and has no container half made, and a new
one removes what carries the build's mark.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final, Protocol

from ..runtime.errors import EngineError
from .protocol import ContainerError

if TYPE_CHECKING:
    from collections.abc import Callable

ABORT_SECONDS: Final = 60.0
"""For a step to end and for Podman to clean up behind it, on a busy machine."""

_PAUSE_SECONDS: Final = 0.1
_FOREIGN_SECONDS: Final = 10.0
_QUIET_SECONDS: Final = 1.0
_REMOVALS: Final = 20


class Answer(Protocol):
    """The answer to a build call, read in a thread (`answerlines.AnswerLines`)."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def is_alive(self) -> bool:
        """Return whether it goes on."""

    def break_off(self) -> None:
        """End the connection."""


class OwnService(Protocol):
    """A service that was started for this build (`service.PodmanService`)."""

    def end_steps(self) -> None:
        """End the build steps that are running."""

    def restart(self, may_end: Callable[[], bool], seconds: float) -> None:
        """End it when no step is running and `may_end()`, or after that many seconds; start it anew."""


class Working(Protocol):
    """The containers of one build (`working.WorkingContainers`)."""

    def found(self) -> list[str]:
        """Return the ids of those that are there now."""

    def are_whole(self) -> bool:
        """Return whether none is half made."""


def end_own(
    service: OwnService, answer: Answer, working: Working, remove: Callable[[str], None]
) -> list[str]:
    """End a build in a service that was started for it.

    Args:
        service: That service. It is started anew, at the same address.
        answer: What is left of the build's answer.
        working: The containers of the build.
        remove: Removes a container.

    Returns:
        The ids of containers that couldn't be removed.
    """
    end = time.monotonic() + ABORT_SECONDS
    # First as Podman does it: a step that is ended fails, and the build with it.
    while answer.is_alive() and time.monotonic() < end:
        service.end_steps()
        answer.join(_PAUSE_SECONDS)
    service.restart(working.are_whole, max(end - time.monotonic(), _PAUSE_SECONDS))
    # The connection is gone with the service that it led to.
    answer.join(_PAUSE_SECONDS)
    for _ in range(_REMOVALS):
        if not _remove_all(working, remove):
            break
        time.sleep(_PAUSE_SECONDS)
    return working.found()


def end_foreign(answer: Answer, working: Working, remove: Callable[[str], None]) -> list[str]:
    """End a build in a service that others use too: its connection is broken off, and its containers go.

    The step that runs gets some seconds to end by itself, for Podman 4.3's service may crash when its caller
    hangs up before ("invalid memory address": the step's container is taken away from it).

    Args:
        answer: What is left of the build's answer.
        working: The containers of the build.
        remove: Removes a container.

    Returns:
        The ids of containers that are still there, for a step that is running may hold one.
    """
    answer.join(_FOREIGN_SECONDS)
    answer.break_off()
    end = time.monotonic() + _FOREIGN_SECONDS
    quiet_until = time.monotonic() + _QUIET_SECONDS
    while time.monotonic() < min(end, quiet_until):
        if _remove_all(working, remove):
            quiet_until = time.monotonic() + _QUIET_SECONDS
        time.sleep(_PAUSE_SECONDS)
    return working.found()


def _remove_all(working: Working, remove: Callable[[str], None]) -> bool:
    """Remove what is there now; was there anything?"""
    found = working.found()
    for container in found:
        # One that can't be removed yet, or is gone meanwhile: the next look tells.
        with contextlib.suppress(ContainerError, EngineError):
            remove(container)
    return bool(found)
