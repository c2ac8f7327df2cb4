"""Standard output and error that lose nothing: an unbuffered stream drops what WASI does not take at once."""

import io
import sys


def install() -> None:
    """Buffer both by lines: what was printed before a task is ended from outside has been heard."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.FileIO(number, "wb", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw, 1 << 16), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
