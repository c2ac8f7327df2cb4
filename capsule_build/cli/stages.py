"""How installs and set-ups show that they go on: a bar on a terminal, a line for each stage in a log."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn

from .output import err
from .progress import wants_bars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

_SAID: Final = {
    "look": "Looking into the environment",
    "download": "Downloading the capsule",
    "install": "Installing the capsule",
    "put": "Uploading",
    "run": "Running the install command",
    "seal": "Sealing",
    "check": "Checking",
}
"""What people are told of the runtime's stages."""


@contextlib.contextmanager
def stages(console: Console | None = None) -> Iterator[Callable[[str, int, int], None]]:
    """Show how an install or set-up goes on.

    Args:
        console: Where to; without, standard error.

    Yields:
        What is told a stage (`download`, `install`, ...) and bytes done and in all; 0 of 0: unknown.
    """
    shown = console or err()
    if not wants_bars(shown):
        yield _Lines(shown)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(bar_width=30))
    with Progress(*columns, console=shown, transient=True) as display:
        yield _Bar(display)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        del done, total
        if stage != self._stage:
            self._stage = stage
            self._console.print(f"{_SAID.get(stage, stage)} ...", markup=False)


class _Bar:
    """One bar, which each stage begins anew."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._stage = ""
        self._task: TaskID | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._task is None or stage != self._stage:
            if self._task is not None:
                self._display.remove_task(self._task)
            self._stage = stage
            self._task = self._display.add_task(_SAID.get(stage, stage), total=None)
        self._display.update(self._task, completed=done, total=total or None)
