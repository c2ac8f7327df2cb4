"""What a program prints until it ends: within bounds, and without waiting for what it left running."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from typing import IO, Final, Protocol

from .errors import CapsuleError

_CHUNK_BYTES: Final = 1 << 16
_LOOK_SECONDS: Final = 0.2
_AFTER_SECONDS: Final = 2.0
"""How long an output is heard that what the program left running keeps open, when it has ended itself."""


class TimeIsOverError(CapsuleError):
    """A program didn't end in time. It still runs."""


class FloodError(CapsuleError):
    """A program prints without end. It still runs."""


class Program(Protocol):
    """A program with pipes, as `subprocess.Popen` has it."""

    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def poll(self) -> int | None:
        """Return its status once it has ended."""


def collect(
    process: Program, stdin: bytes | None, deadline: float | None, *, most: int
) -> tuple[bytes, bytes]:
    """Return what a program prints on its standard output and error until it ends, or closes both.

    What it started in the background may hold them open for as long as that likes: it is left alone.

    Args:
        process: The program, with pipes as its output, and as its input where it gets bytes.
        stdin: What it reads.
        deadline: Until when it may take, by the monotonic clock.
        most: How many bytes it may print.

    Raises:
        TimeIsOverError: It took longer.
        FloodError: It printed more.
    """
    chunks: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    printed = 0
    ended: float | None = None
    left = memoryview(stdin or b"")
    with selectors.DefaultSelector() as pipes:
        for name in chunks:
            pipes.register(getattr(process, name), selectors.EVENT_READ, name)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            pipes.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        while pipes.get_map():
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimeIsOverError("Its time is over.")
            if ended is None and process.poll() is not None:
                ended = now
            if ended is not None and now - ended >= _AFTER_SECONDS:
                break
            for key, _ in pipes.select(
                _LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, deadline - now)
            ):
                if key.data == "stdin":
                    left = _fed(process.stdin, left)
                    is_over = not left
                else:
                    chunk = os.read(key.fd, _CHUNK_BYTES)
                    chunks[key.data].append(chunk)
                    printed += len(chunk)
                    is_over = not chunk
                if is_over:
                    pipes.unregister(key.fileobj)
            if printed > most:
                raise FloodError(f"It printed more than {most} bytes.")
    return b"".join(chunks["stdout"]), b"".join(chunks["stderr"])


def _fed(pipe: IO[bytes] | None, left: memoryview) -> memoryview:
    """Write some of a program's input; return what it hasn't got. Behind the last of it the input ends."""
    if pipe is None:
        return left[:0]
    try:
        left = left[os.write(pipe.fileno(), left[:_CHUNK_BYTES]) :]
    except BrokenPipeError:
        # It has read enough; its own status says why.
        left = left[:0]
    if not left:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    return left
