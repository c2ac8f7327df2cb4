"""The process that runs tasks of a worker, one at a time: reads a request a line, writes its answer.

Its standard output is the worker's alone: what else would be written there goes to standard error.
"""

from __future__ import annotations

import codecs
import ctypes
import os
import signal
import sys

from ...runtime.errors import CapsuleError
from .. import jsontext
from ..instance import abandoned
from ..request import Request, attempt
from ..running import machine
from ..standby import Standby
from . import protocol

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import BinaryIO

    from .protocol import Asked

_PR_SET_PDEATHSIG = 1  # prctl(2)
_KEEP_BYTES = 256 << 20
_MALLOPT = {
    -8: 1,
    -3: _KEEP_BYTES,
    -1: _KEEP_BYTES,
}  # M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD: mallopt(3)


def main() -> None:
    """Serve until the worker is gone, or an instance had to be abandoned."""
    # A Ctrl-C reaches the whole group of the terminal; the worker decides what becomes of its tasks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    _keep_memory()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    try:
        machine(_say)
    except CapsuleError:
        # Each task's envelope will say it.
        pass
    _write(answers, protocol.READY + b"\n")
    standby = Standby()
    for line in sys.stdin.buffer:
        _write(answers, _served(protocol.read_request(line), answers, standby))
        if abandoned():
            break
        standby.renew()
    # Not Python's own way out, which would wait for what was abandoned.
    os._exit(0)


def _end_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent == 1 or os.getppid() != parent:
        os._exit(0)


def _keep_memory() -> None:
    """Let the C library keep what an instance has freed for the next one, which it is handed back from."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # musl has none.
        for option, value in _MALLOPT.items():
            mallopt(option, value)


def _served(asked: Asked, answers: BinaryIO, standby: Standby) -> bytes:
    fields = asked.fields
    printed = _Printed(asked.id, answers) if fields.get("stream") else None
    envelope = attempt(
        Request(
            fields["file"],
            fields.get("args", []),
            fields.get("kwargs", {}),
            mounts=fields.get("mounts", ()),
            packages=fields.get("packages", ()),
            shared_compute=fields.get("shared_compute", False),
            working=fields.get("cwd", "."),
            trace=fields.get("trace", False),
            trust=fields.get("trust"),
        ),
        output=_to_standard_error if printed is None else printed.hear,
        event=lambda _task, _state: None,
        say=_say,
        standby=standby,
    )
    if printed is not None:
        printed.end()
    mark = protocol.DONE_AND_GONE if abandoned() else protocol.DONE
    return mark + jsontext.dumps({"id": asked.id, "output": envelope}).encode() + b"\n"


class _Printed:
    """Passes on what a task prints, as texts: a character that comes in two pieces waits for its end."""

    def __init__(self, identity: str | int, answers: BinaryIO) -> None:
        self._id = identity
        self._answers = answers
        self._decoders = {
            number: codecs.getincrementaldecoder("utf-8")("backslashreplace") for number in (1, 2)
        }

    def hear(self, number: int, data: bytes) -> None:
        self._say(number, self._decoders[number].decode(data))

    def end(self) -> None:
        for number, decoder in self._decoders.items():
            self._say(number, decoder.decode(b"", final=True))

    def _say(self, number: int, text: str) -> None:
        if text:
            line = jsontext.dumps({"id": self._id, "stream": number, "text": text})
            _write(self._answers, protocol.PRINTED + line.encode() + b"\n")


def _write(stream: BinaryIO, data: bytes) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[stream.write(left) or 0 :]
    except BrokenPipeError:
        # The worker is gone, and so will be this process.
        os._exit(0)


def _to_standard_error(_number: int, data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
