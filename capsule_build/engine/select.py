"""Which engine is used: the one that was asked for, or Docker, or else Podman."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from ..runtime.errors import EngineError, UsageError
from .docker import DockerEngine
from .podman import PodmanEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .protocol import Engine

ENGINES: Final[Mapping[str, Callable[[], Engine]]] = {"docker": DockerEngine, "podman": PodmanEngine}
"""How each engine is opened. The first is the one that is used without a choice."""


@contextlib.contextmanager
def select_engine(
    choice: str | None,
    *,
    say: Callable[[str], None],
    engines: Mapping[str, Callable[[], Engine]] = ENGINES,
) -> Iterator[Engine]:
    """Open an engine for the time of a block.

    Args:
        choice: `docker` or `podman`, which then is used or nothing is. Without a choice Docker is used;
            where it can't be and Podman can, Podman is.
        say: Called with the one line that says so.
        engines: How each is opened, by its name.

    Yields:
        The engine; it is closed behind the block.

    Raises:
        UsageError: There is no engine of that name.
        EngineError: It can't be used; without a choice, none can.
    """
    if choice is not None and choice not in engines:
        raise UsageError(f"'{choice}' is not a container engine: {' or '.join(engines)}.")
    engine = engines[choice]() if choice is not None else _first_usable(engines, say)
    try:
        yield engine
    finally:
        engine.close()


def _first_usable(engines: Mapping[str, Callable[[], Engine]], say: Callable[[str], None]) -> Engine:
    failures: list[EngineError] = []
    for name, open_engine in engines.items():
        try:
            engine = open_engine()
        except EngineError as error:
            failures.append(error)
            continue
        if failures:
            set_by = f"DOCKER_HOST is set to '{host}'. " if (host := os.environ.get("DOCKER_HOST")) else ""
            said = failures[0].message.rstrip(".")
            say(f"{set_by}{said}. {name.capitalize()} is used.")
        return engine
    raise EngineError(
        "No container engine can be used:\n" + "\n".join(f"  - {error.message}" for error in failures),
        hint="Install Podman ('sudo apt-get install podman runc' on Debian) or start Docker's daemon; "
        "'capsule-build doctor' says more.",
    )
