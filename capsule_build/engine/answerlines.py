"""A build's log as an engine streams it, read so that Ctrl-C finds the connection whole."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class AnswerLines(threading.Thread):
    """The lines of an answer, read in a thread: an interrupt of the caller leaves the connection whole.

    Podman 4.3 panics when the connection of a build with several stages breaks off (buildah's "semaphore:
    released more than held"), and the containers of all its stages stay.

    Args:
        answer: Opens the response, in the thread too.
    """

    def __init__(self, answer: contextlib.AbstractContextManager[Any]) -> None:
        super().__init__(daemon=True)
        self._answer = answer
        self._response: Any = None
        self._read: queue.SimpleQueue[bytes | BaseException | None] = queue.SimpleQueue()

    def run(self) -> None:
        """Read all lines."""
        try:
            with self._answer as self._response:
                for line in self._response.iter_lines():
                    self._read.put(line)
            self._read.put(None)
        except BaseException as error:
            self._read.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while (item := self._read.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def break_off(self) -> None:
        """End the connection, which ends the build as soon as its step has ended."""
        # There may be no response yet, or none any more.
        with (
            contextlib.suppress(AttributeError, OSError, ValueError),
            socket.socket(fileno=os.dup(self._response.raw.fileno())) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)
