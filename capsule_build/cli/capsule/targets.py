"""What the commands on capsules share: their arguments, the registry lock, the store, and what they print."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...resources import recipes_dir, registry_lock
from ...runtime.environments import open_environment
from ...runtime.errors import UsageError
from ...runtime.registry import load_registry
from ...runtime.store import Store
from ..output import err

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...runtime.environment import Environment
    from ...runtime.registry import Registry

DATA_VARIABLE: Final = "CAPSULE_DATA_DIR"
LOCK_VARIABLE: Final = "CAPSULE_REGISTRY_LOCK"

Tag = Annotated[str, typer.Argument(metavar="TAG", help="A capsule's tag, as 'capsule tags' lists them.")]
Where = Annotated[
    str, typer.Argument(metavar="ENV", help="The environment: local, docker:NAME or podman:NAME.")
]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", help="Run as USER instead of the image's own user."),
]
LockOption = Annotated[
    Path | None,
    typer.Option(
        "--lock", metavar="FILE", envvar=LOCK_VARIABLE, help="A registry lock. Default: the shipped one."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar=DATA_VARIABLE,
        help="Where bundles are kept, in its folder 'capsules'. Default: your data folder's capsule-build.",
    ),
]
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Put the registry lock's bundle in the place of one of another digest."),
]


def default_data_dir() -> Path:
    """Return the user's own folder for data (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local/share") / "capsule-build"


def lock_path(given: Path | None) -> Path:
    """Return the registry lock to read."""
    return given if given is not None else registry_lock()


def open_registry(given: Path | None) -> Registry:
    """Read the registry lock.

    Raises:
        UsageError: It can't be read.
        ContractError: It breaks its format.
    """
    return load_registry(lock_path(given))


def check_named(tag: str, registry: Registry) -> None:
    """Say of a tag that a shipped recipe has, and the registry lock doesn't name, how its capsule is made.

    Raises:
        UsageError: It is such a tag. All others are told by who uses them.
    """
    if tag in registry.capsules:
        return
    # Only where it has gone wrong are recipes read.
    from ...recipes import load_recipes

    for recipe in load_recipes(recipes_dir()).values():
        if recipe.tag == tag:
            raise UsageError(
                f"There is no capsule '{tag}'.",
                hint=f"The registry lock doesn't name it. 'capsule-build {recipe.id}' builds it, and "
                "'capsule-build lock --lock FILE' names it in a lock of yours.",
            )


def open_store(given: Path | None) -> Store:
    """Return the store of bundles; nothing is made."""
    return Store(given if given is not None else default_data_dir())


def opened(name: str, user: str | None = None) -> Environment:
    """Return the environment of a name (see `open_environment`).

    Raises:
        UsageError: It is no such name; or another user is asked for, and it isn't a container.
    """
    if user is not None and name == "local":
        raise UsageError("--user is for containers: run this command as that user.")
    return open_environment(name, user=user)


def print_notes(notes: Iterable[str]) -> None:
    """Tell a person what they should know."""
    for note in notes:
        err().print(f"note: {note}", markup=False)
