"""How much memory a piece of work takes in this process."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def peak_of(work: Callable[[], object]) -> int:
    """Do something, and return the most bytes that Python's objects took while it was done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
