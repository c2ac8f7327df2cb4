"""Waiting in a sandbox: in slices, so that the host can end it, and without asyncio's wake-up pipes."""

import asyncio
import asyncio.selector_events
import select
import selectors
import time

_SLICE = 0.02
"""Seconds. The host can only end what comes back to the guest's own code."""

_sleep = time.sleep


def _sliced_sleep(seconds):
    """Sleep for a number of seconds."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        _sleep(min(left, _SLICE))


class _Selector(selectors.SelectSelector):
    """Waits for time alone: nothing in a sandbox becomes ready later than at once."""

    def select(self, timeout=None):
        if self.get_map():
            ready = super().select(0)
            if ready:
                return ready
        if timeout is None:
            raise RuntimeError("the event loop waits for something that can't come in a sandbox")
        time.sleep(max(timeout, 0))
        return []


def run(coroutine) -> object:
    """Run a coroutine to its end."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(coroutine)
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def install() -> None:
    """Change `time.sleep` and asyncio's loop, before a task imports them."""
    time.sleep = _sliced_sleep
    selectors.DefaultSelector = _Selector
    loop = asyncio.selector_events.BaseSelectorEventLoop
    loop._make_self_pipe = lambda self: None
    loop._close_self_pipe = lambda self: None
    loop._write_to_self = lambda self: None
    loop._read_from_self = lambda self: None
    waiting = select.select

    def sliced_select(read, write, error, timeout=None):
        if read or write or error:
            return waiting(read, write, error, 0 if timeout is None else min(timeout, _SLICE))
        _sliced_sleep(timeout or 0)
        return [], [], []

    select.select = sliced_select
