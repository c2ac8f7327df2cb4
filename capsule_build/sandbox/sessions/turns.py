"""Calls that wait for each other, without a thread for each that waits.

A program's threads for such work are few, and all sessions share them: calls of one session that each held a
thread while they wait would keep all other sessions waiting, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


class Turns:
    """An order of calls, also of calls from several event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: deque[Future[None]] = deque()

    async def take(self, act: Callable[[], _Result]) -> _Result:
        """Do something on a thread, when all that was asked for before is done or given up."""
        await self._come()
        try:
            return await asyncio.to_thread(act)
        finally:
            self._pass_on()

    async def _come(self) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.shield(asyncio.wrap_future(turn))
        except BaseException:
            with self._lock:
                waits = turn in self._waiting
                if waits:
                    self._waiting.remove(turn)
            if not waits:
                # It had just come.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        with self._lock:
            turn = self._waiting.popleft() if self._waiting else None
            self._taken = turn is not None
        if turn is not None:
            turn.set_result(None)
