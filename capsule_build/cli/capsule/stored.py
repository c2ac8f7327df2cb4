"""A task by its name in the registry lock: the file that `capsule exec NAME` runs."""

from __future__ import annotations

import os
from pathlib import Path

from ...sandbox.options import ConfigError
from ..stages import stages
from .targets import DATA_VARIABLE, LOCK_VARIABLE, lock_path, open_registry, open_store


def stored_task(name: str, lock: str | None, data_dir: str | None) -> tuple[str, str]:
    """Return the file of a task, downloaded if the store lacks it, and the digest that it must have.

    Args:
        name: The task's name in the registry lock.
        lock: The registry lock; `None`: the one that the environment names, else the shipped one.
        data_dir: The folder of the store; `None`: the one that the environment names, else the user's own.

    Raises:
        ConfigError: There is no such task.
        CapsuleError: It has been revoked, can't be had, or isn't the one that the lock names.
    """
    where, data = _path(lock, LOCK_VARIABLE), _path(data_dir, DATA_VARIABLE)
    registry = open_registry(where)
    if name not in registry.tasks:
        raise ConfigError(
            f"There is no task '{name}' in {lock_path(where)}, and no packed file has such a name.",
            hint="'capsule tags' lists the tasks of a registry lock; a packed file's name ends in .wasm.",
        )
    task = registry.task(name)
    with stages() as progress:
        path = open_store(data).get(task, progress=lambda done, total: progress("download", done, total))
    return str(path), task.variant.sha256


def _path(given: str | None, variable: str) -> Path | None:
    text = given or os.environ.get(variable)
    return Path(text) if text else None
