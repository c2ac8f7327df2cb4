"""A program's end of a worker: starts it, sends requests, and gives each answer to who waits for it."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import io
import itertools
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

from ...runtime.errors import CapsuleError
from ...runtime.process import converse
from ..running import failure
from .protocol import MAX_LINE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...runtime.process import Conversation
    from ..request import Request

    Output = Callable[[int, bytes], None]

_PROGRAM = [sys.executable, "-P", "-m", "capsule_build.cli.capsule", "worker"]


class WorkerError(CapsuleError):
    """The worker is gone, or refused a request."""


class _Waiting:
    def __init__(self, output: Output | None) -> None:
        self.output = output
        self.answer: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()


class Worker:
    """A worker process. It is started by the first request, and again by one after it has ended.

    Args:
        command: What starts it, for another worker than this installation's.
    """

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = command or _PROGRAM
        self._talk: Conversation | None = None
        self._listener: threading.Thread | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Return the process's number, where it runs."""
        return None if self._talk is None else self._talk.process.pid

    async def run(self, request: Request, *, on_output: Output | None = None) -> dict[str, Any]:
        """Run a file and return its envelope.

        Where the worker ends, or the process that runs the task does, the envelope says so (`wasm_error`).
        A call that is cancelled ends its task.

        Args:
            request: What to run. Folders are relative to this process's working folder.
            on_output: Hears what the tasks print, on a thread of this object. What it raises ends the task,
                and is raised here. Without, it goes to the worker's standard error, which is this process's.
        """
        identity = str(next(self._numbers))
        fields = {
            "id": identity,
            "file": request.file,
            "args": list(request.args),
            "kwargs": dict(request.kwargs),
            "mounts": list(request.mounts),
            "packages": list(request.packages),
            "cwd": os.path.abspath(request.working),
            "shared_compute": request.shared_compute,
            "trace": request.trace,
            "trust": dict(request.trust or {}),
            "stream": on_output is not None,
        }
        try:
            answer = self._send(identity, fields, on_output)
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self._forget(identity)
            raise
        except WorkerError as error:
            return failure("main", "wasm_error", str(error))

    def close(self) -> None:
        """End the worker; it answers what it has first."""
        with self._lock:
            talk, self._talk = self._talk, None
        if talk is not None:
            with self._sending:
                talk.input.close()
        if self._listener is not None:
            # It closes the other end, when all is answered.
            self._listener.join()

    def _send(
        self, identity: str, fields: dict[str, Any], output: Output | None
    ) -> concurrent.futures.Future[dict[str, Any]]:
        line = json.dumps(fields).encode() + b"\n"
        if len(line) - 1 > MAX_LINE_BYTES:
            # The worker would answer it without its id.
            raise WorkerError(f"A request may have {MAX_LINE_BYTES} bytes, and this one has {len(line) - 1}.")
        waiting = _Waiting(output)
        with self._lock:
            talk = self._running()
            self._waiting[identity] = waiting
        self._write(talk, line)
        return waiting.answer

    def _write(self, talk: Conversation, line: bytes) -> None:
        with self._sending:
            try:
                talk.send(line)
            except (OSError, ValueError):
                # It is gone, which the thread that reads from it tells all who wait.
                pass

    def _forget(self, identity: str) -> None:
        with self._lock:
            talk = self._talk
            known = self._waiting.pop(identity, None)
        if known is not None and talk is not None:
            self._write(talk, json.dumps({"id": identity, "cancel": True}).encode() + b"\n")

    def _running(self) -> Conversation:
        if self._talk is None or self._talk.process.poll() is not None:
            self._talk = converse(self._command)
            # What waits belongs to the process that it was sent to.
            self._waiting = {}
            self._listener = threading.Thread(
                target=self._listen, args=(self._talk, self._waiting), daemon=True
            )
            self._listener.start()
        return self._talk

    def _listen(self, talk: Conversation, waiting: dict[str, _Waiting]) -> None:
        with io.BufferedReader(cast("io.RawIOBase", talk.output)) as lines:
            for line in lines:
                # A worker that was killed may have left a piece of one.
                if line.endswith(b"\n"):
                    self._hear(json.loads(line), waiting)
        with self._sending:
            code = talk.close()
        with self._lock:
            lost = list(waiting.values())
            waiting.clear()
        how = f"by signal {-code}" if code < 0 else f"with status {code}"
        for item in lost:
            item.answer.set_exception(WorkerError(f"The worker ended {how} before it had an answer."))

    def _hear(self, said: dict[str, Any], waiting: dict[str, _Waiting]) -> None:
        if "stream" in said:
            item = waiting.get(said["id"])
            if item is not None and item.output is not None:
                try:
                    item.output(said["stream"], said["text"].encode())
                except Exception as error:
                    # It is the caller's own; here it would end the answers of all others.
                    self._forget(said["id"])
                    if item.answer.set_running_or_notify_cancel():
                        item.answer.set_exception(error)
            return
        with self._lock:
            item = waiting.pop(said["id"], None)
        if item is None or not item.answer.set_running_or_notify_cancel():
            return
        if "output" in said:
            item.answer.set_result(said["output"])
        else:
            item.answer.set_exception(WorkerError(said["error"]))


_shared: dict[int, Worker] = {}
_making = threading.Lock()


def shared_worker() -> Worker:
    """Return the worker of this process. It is ended when the process ends."""
    with _making:
        # A process that was forked has none of its parent's threads.
        number = os.getpid()
        if number not in _shared:
            _shared.clear()
            _shared[number] = Worker()
            atexit.register(_shared[number].close)
        return _shared[number]
