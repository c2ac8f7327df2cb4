"""The lines that come in: what can't be read is answered here.

The protocol's library drops such a line without a word, and whoever has sent it waits for ever. So it is
given only lines that it can read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import sys
import threading
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCNotification
from mcp.types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

MAX_LINE_BYTES: Final = 64 << 20
"""Of a message. A file of the largest size fits, also where each of its bytes is written as six."""

_PIECE_BYTES: Final = 4096
"""Of a line that isn't kept, or not understood: enough of its head and its end to find its id."""

_ID: Final = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(-?\d{1,18}|"[\w-]{1,200}")\s*'
# A quote within a text has a backslash before it, so that neither is found in what a message holds.
_ID_FIRST: Final = re.compile(rb"\s*\{\s*" + _ID + rb",", re.ASCII)
_ID_LAST: Final = re.compile(rb",\s*" + _ID + rb"\}\s*\Z", re.ASCII)

_NO_MESSAGE: Final = "A line must be one request, notification or response of JSON-RPC 2.0."
_HALF: Final = r" An escape from \ud800 to \udfff is half of a character, and needs its other half."


class Input(io.RawIOBase):
    """A descriptor that is read from until it ends, or `end` is called: a plain read would go on waiting.

    Args:
        handle: The descriptor, which is closed with this.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._ended, self._end = os.pipe()
        self._poll = select.poll()
        self._poll.register(handle, select.POLLIN)
        self._poll.register(self._ended, select.POLLIN)

    def readable(self) -> bool:
        """Return that it can be read from."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read what is there, and wait for that."""
        if any(handle == self._ended for handle, _ in self._poll.poll()):
            return 0
        return os.readv(self._handle, [buffer])

    def end(self) -> None:
        """Let it seem to have ended."""
        os.write(self._end, b".")

    def close(self) -> None:
        """Close the descriptor, and what is this one's own."""
        if not self.closed:
            for handle in (self._handle, self._ended, self._end):
                os.close(handle)
        super().close()


class Answers(io.BufferedIOBase):
    """Where answers go: a line at a time, whoever writes it.

    Args:
        handle: The descriptor to write to.
        gone: Is called where nobody reads there any more.
    """

    def __init__(self, handle: int, gone: Callable[[], None]) -> None:
        self._handle = handle
        self._gone = gone
        self._unfinished = bytearray()
        self._lock = threading.Lock()

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def write(self, data: Buffer, /) -> int:
        """Write what the library gives, when it is a whole line."""
        self._unfinished += data
        if self._unfinished.endswith(b"\n"):
            line, self._unfinished = bytes(self._unfinished), bytearray()
            self.write_line(line)
        return memoryview(data).nbytes

    def write_line(self, line: bytes) -> None:
        """Write a line, which has its end."""
        left = memoryview(line)
        with self._lock:
            try:
                while left:
                    left = left[os.write(self._handle, left) :]
            except BrokenPipeError:
                self._gone()


class Requests(io.BufferedIOBase):
    """Where the library reads from: gives the lines that it can read, and answers the others.

    Args:
        lines: Where they come from.
        answers: Where errors go.
    """

    def __init__(self, lines: BinaryIO, answers: Answers) -> None:
        self._lines = lines
        self._answers = answers

    def readable(self) -> bool:
        """Return that it can be read from."""
        return True

    def read1(self, _size: int = -1, /) -> bytes:
        """Return the next line, however long it is; nothing: there is none any more."""
        while line := self._lines.readline(MAX_LINE_BYTES + 1):
            if not line.strip():
                continue
            error = self._too_long(line) if len(line) > MAX_LINE_BYTES else _error_of(line)
            if error is None:
                # Where the library reads texts, a line ends there, too.
                return line.replace(b"\r", b" ")
            self._answers.write_line(error)
        return b""

    def _too_long(self, line: bytes) -> bytes:
        head = tail = line[:_PIECE_BYTES]
        while line and not line.endswith(b"\n"):
            tail = (tail + line)[-_PIECE_BYTES:]
            line = self._lines.readline(1 << 20)
        identity = _identity_in(head, (tail + line)[-_PIECE_BYTES:])
        return _error(INVALID_REQUEST, f"A message may have {MAX_LINE_BYTES} bytes.", identity)


def _error_of(line: bytes) -> bytes | None:
    """Return the answer to a line that is no message; `None`: it is one."""
    try:
        line.decode()
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except UnicodeDecodeError as error:
        at = f"byte {error.start} isn't"
        return _error(PARSE_ERROR, f"A message must be text in UTF-8, and {at}.", _identity(line))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] != "json_invalid":
            return _error(INVALID_REQUEST, _NO_MESSAGE, _identity(line))
        why = f"A message must be JSON: {first['ctx']['error']}."
        return _error(PARSE_ERROR, why + (_HALF if "hex escape" in why else ""), _identity(line))
    if isinstance(message, JSONRPCNotification) and "id" in json.loads(line):
        # A request whose id is none; it would be heard, and never answered.
        return _error(INVALID_REQUEST, "A request's id must be a text or a whole number.", None)
    return None


def _error(code: int, message: str, identity: int | str | None) -> bytes:
    answer = JSONRPCError(jsonrpc="2.0", id=identity, error=ErrorData(code=code, message=message))
    return answer.model_dump_json(exclude_unset=True).encode() + b"\n"


def _identity(line: bytes) -> int | str | None:
    """Return the id of the request that a line was to be, where it can be told."""
    try:
        document = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _identity_in(line[:_PIECE_BYTES], line[-_PIECE_BYTES:])
    # An answer has the id of a request of this side.
    if not isinstance(document, dict) or "result" in document or "error" in document:
        return None
    identity = document.get("id")
    if isinstance(identity, str):
        return identity if identity.isprintable() else None
    return identity if isinstance(identity, int) and not isinstance(identity, bool) else None


def _identity_in(head: bytes, tail: bytes) -> int | str | None:
    """Return the id in a piece of a line, where it stands first or last, as clients write it."""
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if found is None:
        return None
    identity: int | str = json.loads(found[1])
    return identity


@contextlib.contextmanager
def checked_streams() -> Iterator[Callable[[], None]]:
    """Put this between the library and the process's standard input and output. Gives what ends the input.

    What else would read from there reads nothing, and what else would print there prints to standard error.
    """
    with (
        Input(os.dup(0)) as source,
        io.BufferedReader(source, 1 << 16) as lines,
        os.fdopen(os.dup(1), "wb") as output,
        open(os.devnull, "rb") as nothing,
    ):
        os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        answers = Answers(output.fileno(), source.end)
        before = sys.stdin, sys.stdout
        sys.stdin, sys.stdout = io.TextIOWrapper(Requests(lines, answers)), io.TextIOWrapper(answers)
        try:
            yield source.end
        finally:
            sys.stdin, sys.stdout = before
