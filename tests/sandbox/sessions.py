"""What the tests of sessions share."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import capsule

if TYPE_CHECKING:
    from collections.abc import Coroutine


def go(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end."""
    return asyncio.run(work)


async def fails(session: capsule.Session, code: str) -> tuple[str, str]:
    """Run code that has to fail, and return the error's type and message."""
    with pytest.raises(capsule.SessionError) as caught:
        await session.run(code)
    return caught.value.error_type, caught.value.message


def resident() -> int:
    """Return how many bytes of memory this process has, when the last instance is gone, too.

    That one is taken apart behind its answer.
    """
    sizes = []
    for _ in range(20):
        time.sleep(0.01)
        sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
    return min(sizes)
