"""The client of a worker: `run(worker=True)`, and what its callers have when the worker is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

import capsule
from capsule_build.sandbox.request import Request
from capsule_build.sandbox.worker.client import Worker

from .tasks import LONG

if TYPE_CHECKING:
    from .tasks import Bench


def test_run_by_a_worker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.sandbox.worker.client.MAX_LINE_BYTES", 1000)
    bench.write("file.py", "def main(a, b=0):\n    print('said')\n    return [a, b]\n")
    bench.write("long.py", LONG)
    heard: list[tuple[int, bytes]] = []
    begun = threading.Event()

    async def call(number: int) -> dict[str, Any]:
        return await capsule.run(
            file="file.py",
            args=[number],
            kwargs={"b": 2},
            cwd=str(bench.folder),
            worker=True,
            on_output=lambda n, d: heard.append((n, d)),
        )

    async def use() -> None:
        envelopes = await asyncio.gather(*(call(number) for number in range(20)))
        assert [envelope["result"] for envelope in envelopes] == [[number, 2] for number in range(20)]
        assert heard == [(1, b"said\n")] * 20
        # A request that is too long: the worker couldn't say whose it is.
        huge = await capsule.run("file.py", ["x" * 1000], cwd=str(bench.folder), worker=True)
        assert huge["error"]["error_type"] == "wasm_error"
        assert "may have 1000 bytes" in huge["error"]["message"]
        missing = await capsule.run(file="nope.py", cwd=str(bench.folder), worker=True)
        assert missing["error"]["error_type"] == "config_error"
        long = asyncio.create_task(
            capsule.run("long.py", cwd=str(bench.folder), worker=True, on_output=lambda *_: begun.set())
        )
        assert await asyncio.to_thread(begun.wait, 20)
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        assert (await call(1))["result"] == [1, 2]

    asyncio.run(use())


def test_a_worker_that_is_killed_within_an_answer_gives_an_error(bench: Bench) -> None:
    begun = json.dumps({"id": "1", "output": {}})[:-5]
    worker = Worker(["sh", "-c", f"read line; printf %s '{begun}'; kill -9 $$"])
    bench.write("hello.py", "def main(): return 1\n")
    envelope = asyncio.run(asyncio.wait_for(worker.run(Request("hello.py")), 30))
    assert envelope["error"]["error_type"] == "wasm_error"
    assert "ended by signal 9" in envelope["error"]["message"]
    worker.close()


def test_a_listener_that_fails_ends_its_own_task_alone(bench: Bench) -> None:
    bench.write("long.py", LONG)
    bench.write("hello.py", "def main(): return 1\n")

    def listen(_number: int, data: bytes) -> None:
        raise LookupError(data)

    async def use() -> None:
        worker = Worker()
        other = asyncio.create_task(worker.run(Request("hello.py", working=str(bench.folder))))
        failing = worker.run(Request("long.py", working=str(bench.folder)), on_output=listen)
        with pytest.raises(LookupError, match="begun"):
            await asyncio.wait_for(failing, 30)
        assert (await asyncio.wait_for(other, 30))["result"] == 1
        again = worker.run(Request("hello.py", working=str(bench.folder)))
        assert (await asyncio.wait_for(again, 30))["result"] == 1
        await asyncio.to_thread(worker.close)

    asyncio.run(use())


def test_a_worker_that_is_killed_gives_an_error_and_the_next_call_another(bench: Bench) -> None:
    bench.write("long.py", LONG)
    bench.write("file.py", "def main(): return 1\n")
    worker = Worker()
    begun = threading.Event()

    async def use() -> None:
        request = Request("long.py", working=str(bench.folder))
        calls = [asyncio.create_task(worker.run(request, on_output=lambda *_: begun.set())) for _ in range(3)]
        await asyncio.to_thread(begun.wait, 20)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        for envelope in await asyncio.wait_for(asyncio.gather(*calls), 10):
            assert envelope["error"] == {
                "error_type": "wasm_error",
                "message": "The worker ended by signal 9 before it had an answer.",
            }
        again = await worker.run(Request("file.py", working=str(bench.folder)))
        assert again["result"] == 1

    asyncio.run(use())
    worker.close()
    assert worker.pid is None
