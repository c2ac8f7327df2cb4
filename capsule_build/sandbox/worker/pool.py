"""The worker: takes requests from its input, has each run by a process of its own, passes answers on.

One loop that waits for whichever comes first, and that never waits for one side while another could go on: a
program that writes all its requests before it reads an answer is served like any other.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import deque
from typing import Final

from ...runtime.process import ProgramMissingError, converse
from . import protocol
from .protocol import Asked, RequestError, error_line, read_request

_STDIN: Final = 0
_STDOUT: Final = 1
_READ_BYTES: Final = 1 << 20
_PATIENCE_SECONDS: Final = 0.05
"""How long a request waits, while none ends, before one more process is started for it."""

_BUSY_MAXIMUM: Final = 16
_GONE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


class _Child:
    """A process that runs tasks, and the one that it has."""

    def __init__(self) -> None:
        # -P: the working folder may hold anything, also modules by the names of ours.
        argv = [sys.executable, "-P", "-m", "capsule_build.sandbox.worker.child"]
        self._talk = converse(argv)
        self.output = self._talk.output.fileno()
        self.has_started = False
        self.ready = False
        self.task: Asked | None = None
        self.last: object = None
        self.unfinished: list[bytes] = []

    def lines(self, data: bytes) -> list[bytes]:
        """Return the whole lines that there are with what has come now, each with its end."""
        head, newline, rest = data.rpartition(b"\n")
        if not newline:
            self.unfinished.append(data)
            return []
        whole = b"".join((*self.unfinished, head, newline))
        self.unfinished = [rest] if rest else []
        return whole.splitlines(keepends=True)

    def give(self, asked: Asked) -> bool:
        """Give it a task; `False`: it is gone."""
        self.task = asked
        self.last = asked.fields["file"]
        try:
            # It waits for this, and reads it at once.
            self._talk.send(asked.line + b"\n")
        except BrokenPipeError:
            # It can't have read a whole line.
            self.task = None
            return False
        return True

    def end(self, *, at_once: bool) -> str:
        """End it and return how it did."""
        if at_once:
            self._talk.process.kill()
        code = self._talk.close()
        return f"by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"with status {code}"


class Pool:
    """A worker.

    Args:
        jobs: How many tasks may run at once. There are as many processes as processors to begin with, and
            more where tasks take their time.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._most = jobs or max(_BUSY_MAXIMUM, 2 * processors())
        self._children: dict[int, _Child] = {}
        self._waiting: deque[Asked] = deque()
        self._answers: deque[memoryview] = deque()
        self._unread = bytearray()
        self._skipping = False
        self._input_ended = False
        self._start_failed = False
        self._moved = time.monotonic()
        self._poll = select.poll()

    def serve(self) -> None:
        """Serve until the input has ended and all is answered, or nobody reads the answers any more."""
        self._poll.register(_STDIN, select.POLLIN)
        self._poll.register(_STDOUT, 0)
        try:
            for _ in range(min(self._most, processors())):
                self._start()
            while not self._input_ended or self._has_work():
                if not self._turn():
                    return
        finally:
            for child in self._children.values():
                child.end(at_once=child.task is not None or not child.ready)

    def _has_work(self) -> bool:
        return bool(self._waiting or self._answers or any(child.task for child in self._children.values()))

    def _turn(self) -> bool:
        """Do what can be done; `False`: there is nobody to do it for."""
        self._poll.modify(_STDOUT, select.POLLOUT if self._answers else 0)
        grows = self._waiting and len(self._children) < self._most
        for handle, event in self._poll.poll(_PATIENCE_SECONDS * 1000 if grows else None):
            if handle == _STDIN:
                self._read()
            elif handle == _STDOUT:
                if event & _GONE or not self._write():
                    return False
            elif handle in self._children:
                self._hear(self._children[handle])
        self._distribute()
        return True

    def _read(self) -> None:
        data = os.read(_STDIN, _READ_BYTES)
        if not data:
            self._input_ended = True
            self._poll.unregister(_STDIN)
            # A last line may lack its end.
            data = b"\n" if self._unread else b""
        if b"\n" not in data:
            if not self._skipping:
                self._unread += data
            if len(self._unread) > protocol.MAX_LINE_BYTES:
                message = f"A request has more than {protocol.MAX_LINE_BYTES} bytes."
                self._answer(error_line(None, message))
                self._unread.clear()
                self._skipping = True
            return
        first, *more = data.split(b"\n")
        if not self._skipping:
            self._take(bytes(self._unread) + first)
        self._skipping = False
        self._unread = bytearray(more.pop())
        for line in more:
            self._take(line)

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            asked = read_request(line)
        except RequestError as error:
            self._answer(error_line(error.id, str(error)))
            return
        if asked.fields.get("cancel"):
            self._cancel(asked.id)
        else:
            if not self._waiting:
                self._moved = time.monotonic()
            self._waiting.append(asked)

    def _cancel(self, identity: str | int) -> None:
        """End a request; one that isn't there, or is answered already, is nothing to say anything of."""
        message = "The request was cancelled."
        for asked in self._waiting:
            if asked.id == identity:
                self._waiting.remove(asked)
                self._answer(error_line(identity, message))
                return
        for child in self._children.values():
            if child.task is not None and child.task.id == identity:
                self._remove(child, at_once=True)
                self._answer(error_line(identity, message))
                return

    def _answer(self, line: bytes) -> None:
        self._answers.append(memoryview(line))

    def _write(self) -> bool:
        """Write a piece that the kernel has promised to take at once; `False`: nobody reads."""
        if not self._answers:
            return True
        piece = self._answers[0]
        try:
            written = os.write(_STDOUT, piece[: select.PIPE_BUF])
        except BrokenPipeError:
            return False
        if written == len(piece):
            self._answers.popleft()
        else:
            self._answers[0] = piece[written:]
        return True

    def _hear(self, child: _Child) -> None:
        data = os.read(child.output, _READ_BYTES)
        if not data:
            self._lose(child)
            return
        for line in child.lines(data):
            mark, said = line[:1], line[1:]
            if mark == protocol.READY:
                child.has_started = child.ready = True
                self._start_failed = False
                continue
            self._answer(said)
            if mark != protocol.PRINTED:
                child.task = None
                self._moved = time.monotonic()
            if mark == protocol.DONE_AND_GONE:
                self._remove(child, at_once=False)
                return

    def _lose(self, child: _Child) -> None:
        """A process has ended by itself: its task has an error, and no other task has."""
        task = child.task
        how = self._remove(child, at_once=False)
        if task is not None:
            self._answer(error_line(task.id, f"The process that ran the task ended {how}."))
        elif not child.has_started and not self._children:
            if self._start_failed:
                # So would the next one.
                self._refuse(f"two in a row ended, the last one {how}.")
            # What ended the first was perhaps no fault of its own: those that wait get another.
            self._start_failed = not self._start_failed

    def _refuse(self, why: str) -> None:
        """Give all that wait an error, since there is no process for them."""
        while self._waiting:
            message = f"No process for tasks can be started: {why}"
            self._answer(error_line(self._waiting.popleft().id, message))

    def _remove(self, child: _Child, *, at_once: bool) -> str:
        self._poll.unregister(child.output)
        del self._children[child.output]
        return child.end(at_once=at_once)

    def _distribute(self) -> None:
        while self._waiting:
            idle = [child for child in self._children.values() if child.ready and child.task is None]
            if not idle:
                break
            # The one that has been idle for longest, of those that prepared themselves for the same file.
            file = self._waiting[0].fields["file"]
            child = min(idle, key=lambda child: child.last != file)
            # What is given something to do goes behind the others; so does one that is gone.
            self._children[child.output] = self._children.pop(child.output)
            if child.give(self._waiting[0]):
                self._waiting.popleft()
                self._moved = time.monotonic()
            else:
                child.ready = False
        if not self._waiting or any(not child.ready for child in self._children.values()):
            return
        late = time.monotonic() - self._moved >= _PATIENCE_SECONDS
        if len(self._children) < (self._most if late else min(self._most, processors())):
            self._start()

    def _start(self) -> None:
        try:
            child = _Child()
        except ProgramMissingError as error:
            # The system has no more to give: those that are there do what waits.
            if not self._children:
                self._refuse(error.message)
            return
        self._children[child.output] = child
        self._poll.register(child.output, select.POLLIN)
