"""Several jobs at once, of which the first to fail ends all."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORKERS: Final = 4
GRACE_SECONDS: Final = 5.0
"""How long jobs that were called off may take to end. One that waits for a silent server may take longer; its
thread doesn't keep the process alive."""

T = TypeVar("T")


def _result(outcome: tuple[int, T] | BaseException) -> tuple[int, T]:
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def run_all(jobs: Sequence[Callable[[], T]], cancelled: threading.Event) -> list[T]:
    """Run jobs in threads, `WORKERS` at a time.

    Args:
        jobs: What to do.
        cancelled: Set when a job fails or the user interrupts; running jobs watch it.

    Returns:
        What the jobs returned, in their order.

    Raises:
        BaseException: What the first failing job raised; a `KeyboardInterrupt` of the caller's thread.
    """
    waiting: queue.SimpleQueue[tuple[int, Callable[[], T]]] = queue.SimpleQueue()
    for job in enumerate(jobs):
        waiting.put(job)
    done: queue.SimpleQueue[tuple[int, T] | BaseException] = queue.SimpleQueue()

    def work() -> None:
        while not cancelled.is_set():
            try:
                number, job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, job()))
            except BaseException as error:
                done.put(error)

    # Not a ThreadPoolExecutor: the interpreter waits for its threads before it exits.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(WORKERS, len(jobs)))]
    results: dict[int, T] = {}
    try:
        for thread in threads:
            thread.start()
        while len(results) < len(jobs):
            number, result = _result(done.get())
            results[number] = result
    except BaseException:
        cancelled.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(GRACE_SECONDS)
        raise
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(jobs))]
