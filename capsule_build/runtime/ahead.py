"""Pieces made in a thread of their own, a few ahead of who takes them."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECES: Final = 4
_STOP_SECONDS: Final = 0.05


class Ahead:
    """Calls a function over and over in a thread, as far as a few pieces ahead.

    Args:
        make: Returns the next piece; an empty one is the last.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._pieces: queue.Queue[bytes | BaseException] = queue.Queue(_PIECES)
        self._is_stopped = False
        self._thread = threading.Thread(target=self._work, name="capsule-ahead", daemon=True)
        self._thread.start()

    def take(self) -> bytes:
        """Return the next piece; what the function raised is raised here, in its turn."""
        piece = self._pieces.get()
        if isinstance(piece, BaseException):
            self._thread.join()
            raise piece
        if not piece:
            self._thread.join()
        return piece

    def close(self) -> None:
        """End the thread; what is ahead is lost."""
        self._is_stopped = True
        self._thread.join()

    def _work(self) -> None:
        piece: bytes | BaseException = b"-"
        while piece and not isinstance(piece, BaseException):
            try:
                piece = self._make()
            except BaseException as error:
                piece = error
            while not self._is_stopped:
                try:
                    self._pieces.put(piece, timeout=_STOP_SECONDS)
                    break
                except queue.Full:
                    continue
            if self._is_stopped:
                return
