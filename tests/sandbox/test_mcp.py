"""`capsule mcp`, as the protocol's own client sees it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from capsule_build.runtime.process import run

from .tasks import CAPSULE

if TYPE_CHECKING:
    from .tasks import Bench

TOOLS = {"execute_python", "create_session", "run_in_session", "reset_session", "close_session"}


def server(bench: Bench, config: str = "") -> StdioServerParameters:
    path = bench.write("mcp.toml", config)
    return StdioServerParameters(
        command=str(CAPSULE), args=["mcp", "--config", str(path)], env=dict(os.environ), cwd=str(bench.folder)
    )


async def call(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments)
    return bool(result.is_error), "".join(item.text for item in result.content if item.type == "text")


def test_tools_calls_errors_and_limits(bench: Bench) -> None:
    async def use() -> None:
        async with Client(server(bench, 'compute = "LOW"\nram = "64MB"\n')) as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == TOOLS
            assert all(tool.description for tool in tools)
            assert await call(client, "execute_python", code="print('Hello')\nx = 5 + 3\nx * 2") == (
                False,
                "Hello\n16",
            )
            failed, said = await call(client, "execute_python", code="print(1)\n1/0")
            assert failed
            # The library puts the tool's name before it.
            assert said.endswith(": 1\ntask_error: ZeroDivisionError: division by zero (<run 1>, line 2)")
            failed, said = await call(client, "execute_python", code="while True: pass")
            assert failed
            assert "fuel_exhausted: The task used up its compute: 100000000 units. Give it more" in said
            failed, said = await call(client, "execute_python", code="bytearray(200 << 20)")
            assert failed
            assert "MemoryError" in said or "memory_exceeded" in said
            assert (await call(client, "execute_python", code="open('/etc/passwd')"))[0]
            assert (await call(client, "execute_python", program="x"))[0]

            _, first = await call(client, "create_session")
            _, second = await call(client, "create_session")
            assert await call(client, "run_in_session", session_id=first, code="x = 1") == (False, "")
            assert await call(client, "run_in_session", session_id=first, code="x += 1; x") == (False, "2")
            assert (await call(client, "run_in_session", session_id=second, code="x"))[0]
            await call(client, "reset_session", session_id=first)
            assert (await call(client, "run_in_session", session_id=first, code="x"))[0]
            await call(client, "close_session", session_id=first)
            failed, said = await call(client, "run_in_session", session_id=first, code="1")
            assert failed
            assert said.endswith(f"There is no session '{first}'.")

    asyncio.run(use())


def test_a_cancelled_call_ends_its_code(bench: Bench) -> None:
    async def use() -> None:
        async with Client(server(bench, 'timeout = "60s"\n')) as client:
            _, session = await call(client, "create_session")
            await call(client, "run_in_session", session_id=session, code="x = 1")
            began = time.monotonic()
            long = asyncio.create_task(
                call(client, "run_in_session", session_id=session, code="x = 2\nwhile True: pass")
            )
            await asyncio.sleep(2)
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long
            # Runs of one session wait for each other: that this comes shows that the other is no more.
            assert await call(client, "run_in_session", session_id=session, code="x") == (False, "1")
            assert time.monotonic() - began < 40

    asyncio.run(use())


def test_a_wrong_option_is_said_before_it_serves(bench: Bench) -> None:
    bench.write("mcp.toml", 'compute = "SOME"\n')
    result = bench.command("mcp", "--config", "mcp.toml")
    assert result.code == 2
    assert b"must be LOW" in result.stderr
    assert bench.command("mcp", "--config", "nope.toml").code == 2


def test_without_the_package_it_says_how_to_get_it() -> None:
    program = (
        "import sys\nsys.modules['mcp'] = None\n"
        "from capsule_build.cli.capsule.app import run\nsys.exit(run(['mcp']))"
    )
    result = run([sys.executable, "-c", program], check=False)
    assert result.code == 2
    assert b"pip install 'capsule-build[mcp]'" in result.stderr
