"""How installs and set-ups show that they go on: a bar on a terminal, a line for each stage in a log."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

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

_AGAIN_SECONDS: Final = 15.0
"""How long a stage may go on before a log is told again."""


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
        with _Lines(shown) as lines:
            yield lines
        return
    description = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), description, BarColumn(bar_width=30), TimeElapsedColumn())
    with Progress(*columns, console=shown, transient=True) as display:
        yield _Bar(display)


class _Lines:
    """A line for each stage, and one again whenever a stage has gone on for long."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._begun = time.monotonic()
        self._is_over = threading.Event()
        self._clock = threading.Thread(target=self._tell_again, daemon=True)

    def __enter__(self) -> _Lines:
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._clock.join()

    def __call__(self, stage: str, done: int, total: int) -> None:
        del done, total
        if stage != self._stage:
            self._stage, self._begun = stage, time.monotonic()
            self._console.print(f"{_SAID.get(stage, stage)} ...", markup=False)

    def _tell_again(self) -> None:
        told = self._begun
        while not self._is_over.wait(max(0.0, max(told, self._begun) + _AGAIN_SECONDS - time.monotonic())):
            now = time.monotonic()
            if self._stage and now - max(told, self._begun) >= _AGAIN_SECONDS:
                said = _SAID.get(self._stage, self._stage)
                self._console.print(f"{said}: {now - self._begun:.0f} s", markup=False)
                told = now


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
