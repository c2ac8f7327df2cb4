"""Both engines report a build as a stream of JSON objects: lines of log, an error, the image's id."""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Final

from .protocol import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TAIL_LINES: Final = 40
"""How many of the last lines an error repeats."""

STEP: Final = re.compile(r"(?:\[\d+/\d+\] )?STEP \d+/\d+ ?: ", re.IGNORECASE)
"""Docker prints `Step 2/7 : RUN ...`; Podman `STEP 2/7: RUN ...`, with `[1/2] ` before it in a stage."""

_NOT_TEXT: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal sequences and control characters. Docker colours what a step prints to standard error."""

_RUNNING: Final = re.compile(r" ---> Running in ([0-9a-f]{12,64})")
"""Docker says in which container a step runs."""

_PODMAN_ID: Final = re.compile(r"[0-9a-f]{64}")


class BuildLog:
    """Follows one build.

    Args:
        engine: The engine's name, for messages.
        on_line: Called with each line of the log, without its line end.

    Attributes:
        container: The container of the step that ran last, where the engine says so (Docker does).
    """

    def __init__(self, engine: str, on_line: Callable[[str], None]) -> None:
        self._engine = engine
        self._on_line = on_line
        self._step = ""
        self._open = ""
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._image: str | None = None
        self.container: str | None = None

    def add(self, report: Mapping[str, object]) -> None:
        """Take one object of the stream.

        Raises:
            BuildError: It says that the build failed.
        """
        if "error" in report:
            raise self.failure(str(report["error"]).strip())
        aux = report.get("aux")
        if isinstance(aux, dict) and "ID" in aux:
            self._image = str(aux["ID"])
        text = report.get("stream")
        if isinstance(text, str):
            *lines, self._open = (self._open + text).split("\n")
            for line in lines:
                self._line(line)

    def finish(self) -> str:
        """Return the built image's id once the stream has ended.

        Raises:
            BuildError: The stream ended without one.
        """
        if self._open:
            self._line(self._open)
            self._open = ""
        if self._image is None:
            raise self.failure("the engine ended the build without an image and without an error")
        return self._image

    def failure(self, cause: str) -> BuildError:
        """Return the error of a build that failed: the step, the cause, and the last lines of the log."""
        if self._open:
            self._line(self._open)
            self._open = ""
        where = f" in '{self._step}'" if self._step else " before its first step"
        tail = tuple(self._tail)
        log = "".join(f"\n  | {line}" for line in tail)
        return BuildError(
            f"The {self._engine} build failed{where}: {cause}"
            + (f"\nThe end of its log:{log}" if log else ""),
            step=self._step,
            log_tail=tail,
        )

    def _line(self, line: str) -> None:
        line = _NOT_TEXT.sub("", line)
        if not line.strip():
            return
        if STEP.match(line):
            self._step = line.strip()
        if running := _RUNNING.fullmatch(line):
            self.container = running[1]
        if self._engine == "podman" and _PODMAN_ID.fullmatch(line):
            self._image = line
        self._tail.append(line)
        self._on_line(line)
