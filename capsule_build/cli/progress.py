"""How downloads and builds show that they go on: bars on a terminal, plain lines in a log."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TaskID, TextColumn

from ..runtime.errors import CapsuleError
from .output import human_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from ..pins import Pin

_LOG_WIDTH = 100
"""How much of an engine's log line is shown beside a bar."""


class Lines:
    """Shows each event as a line: for CI, files and dumb terminals.

    Of the engine's log only the steps are shown, until `show_log` asks for all of it.

    Args:
        console: Where to.
        verbose: Whether the engine's whole log is shown.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._log: list[str] = []
        self._began: dict[tuple[str, str], float] = {}

    def started(self, pin: Pin) -> None:
        """Say what is fetched."""
        self._began[pin.key] = time.monotonic()
        size = "" if pin.size is None else f", {human_size(pin.size)}"
        self._print(f"Fetching {pin.label} {pin.version}{size}")

    def advanced(self, pin: Pin, bytes_done: int) -> None:
        """Say nothing: a line for each block is no help in a log."""

    def finished(self, pin: Pin) -> None:
        """Say what was fetched, and how long it took."""
        seconds = time.monotonic() - self._began.pop(pin.key, time.monotonic())
        self._print(f"Fetched {pin.label} in {seconds:.1f} s")

    def note(self, text: str) -> None:
        """Say it."""
        self._console.print(f"[yellow]note:[/] {escape(text)}")

    def step(self, text: str) -> None:
        """Say which step begins."""
        self._print(f"{text} ...")

    def log(self, line: str) -> None:
        """Repeat a line of the engine's log, if it is a step or all of it was asked for."""
        from ..engine.buildlog import STEP

        self._log.append(line)
        if self._verbose or STEP.match(line):
            self._print(f"  {line.rstrip()}")

    def show_log(self) -> None:
        """Repeat the engine's whole log, where that wasn't done all along."""
        if not self._verbose and self._log:
            self._print("The engine's whole log:")
            for line in self._log:
                self._print(f"  {line.rstrip()}")

    def packed(self, size: int) -> None:
        """Say nothing: packing takes seconds."""

    def _print(self, text: str) -> None:
        self._console.print(escape(text))


class Bars:
    """Shows downloads, the engine's last line and packing below the lines already printed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._display = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            DownloadColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}
        self._lock = threading.Lock()
        self._packing: TaskID | None = None
        self._log_task: TaskID | None = None

    def __enter__(self) -> Bars:
        self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()

    def started(self, pin: Pin) -> None:
        """Show a bar."""
        with self._lock:
            self._tasks[pin.key] = self._display.add_task(f"{pin.label} {pin.version}", total=pin.size)

    def advanced(self, pin: Pin, bytes_done: int) -> None:
        """Move the bar."""
        with self._lock:
            if (task := self._tasks.get(pin.key)) is not None:
                self._display.update(task, completed=bytes_done)

    def finished(self, pin: Pin) -> None:
        """Put a line in the bar's place."""
        with self._lock:
            if (task := self._tasks.pop(pin.key, None)) is not None:
                self._display.remove_task(task)
        self._console.print(f"[green]fetched[/] {escape(f'{pin.label} {pin.version}')}")

    def note(self, text: str) -> None:
        """Say it, above the bars."""
        self._console.print(f"[yellow]note:[/] {escape(text)}")

    def step(self, text: str) -> None:
        """Say which step begins, and drop what the last one showed."""
        with self._lock:
            for task in (self._packing, self._log_task):
                if task is not None:
                    self._display.remove_task(task)
            self._packing = self._log_task = None
        self._console.print(f"[bold]{escape(text)}[/]")

    def log(self, line: str) -> None:
        """Show the engine's last line."""
        shown = line.strip()[:_LOG_WIDTH]
        if not shown:
            return
        with self._lock:
            if self._log_task is None:
                self._log_task = self._display.add_task(shown, total=None)
            else:
                self._display.update(self._log_task, description=shown)

    def packed(self, size: int) -> None:
        """Count what is packed."""
        with self._lock:
            if self._packing is None:
                self._packing = self._display.add_task("packing", total=None)
            self._display.advance(self._packing, size)


def wants_bars(console: Console) -> bool:
    """Return whether bars make sense: a real terminal, and not a CI's imitation of one."""
    return console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")


@contextlib.contextmanager
def build_reporter(console: Console, *, verbose: bool = False) -> Iterator[Lines | Bars]:
    """Show how downloads and builds go on, in the way that fits the console.

    Args:
        console: Standard error's, as a rule. Its colours follow NO_COLOR.
        verbose: Whether the engine's whole log is shown, line by line.

    Yields:
        A `fetch.Progress` that hears of the steps of a build as well.
    """
    if verbose or not wants_bars(console):
        lines = Lines(console, verbose=verbose)
        try:
            yield lines
        except CapsuleError as error:
            # Known by what it carries: its class would bring in the engines' packages.
            if getattr(error, "log_tail", ()):
                lines.show_log()
            raise
        return
    with Bars(console) as bars:
        yield bars
