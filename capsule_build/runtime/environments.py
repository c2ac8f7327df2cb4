"""Environments by their short names: `local`, `docker:NAME`, `podman:NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .containers import DockerContainer, PodmanContainer
from .errors import UsageError
from .local import LocalEnvironment

if TYPE_CHECKING:
    from .environment import Environment


def open_environment(text: str, *, user: str | None = None) -> Environment:
    """Return the environment of a short name.

    Args:
        text: `local`, `docker:NAME` or `podman:NAME`, with a container's name or id.
        user: The user to be in a container, where that isn't its own.

    Raises:
        UsageError: It is no such name.
        EngineError: The engine can't be reached.
        TargetError: There is no such container, or it isn't running.
    """
    kind, _, container = text.partition(":")
    if text == "local":
        return LocalEnvironment()
    if kind == "docker" and container:
        return DockerContainer(container, user=user)
    if kind == "podman" and container:
        return PodmanContainer(container, user=user)
    raise UsageError(f"{text!a} is not an environment.", hint="One reads local, docker:NAME or podman:NAME.")
