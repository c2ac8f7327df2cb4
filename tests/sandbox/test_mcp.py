"""`capsule mcp`, as the protocol's own client sees it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import select
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from mcp import Client, StdioServerParameters

from capsule_build.runtime.process import converse, run
from capsule_build.sandbox.mcp.lines import MAX_LINE_BYTES
from capsule_build.sandbox.mcp.server import MAX_FILE_BYTES

from .tasks import CAPSULE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .tasks import Bench

FILE_TOOLS = {"import_file", "export_file", "list_files", "delete_file"}
SESSION_TOOLS = {"create_session", "run_in_session", "reset_session", "close_session"}
TOOLS = {"execute_python", "execute_javascript"} | SESSION_TOOLS | FILE_TOOLS


def server(bench: Bench, config: str = "") -> StdioServerParameters:
    path = bench.write("mcp.toml", config)
    return StdioServerParameters(
        command=str(CAPSULE), args=["mcp", "--config", str(path)], env=dict(os.environ), cwd=str(bench.folder)
    )


async def call(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments)
    return bool(result.is_error), "".join(item.text for item in result.content if item.type == "text")


class Wire:
    """A server that is sent lines, whatever they are: the client sends none that are wrong."""

    def __init__(self, folder: Path) -> None:
        self.talk = converse([str(CAPSULE), "mcp"], cwd=str(folder))
        self.output = io.BufferedReader(cast("io.RawIOBase", self.talk.output))
        who = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        assert "result" in self.ask(message("initialize", 0, **who))
        self.talk.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')

    def ask(self, line: bytes) -> dict[str, Any]:
        self.talk.send(line + b"\n")
        assert select.select([self.output], [], [], 60)[0], "There is no answer."
        answer: dict[str, Any] = json.loads(self.output.readline())
        return answer

    def close(self) -> None:
        self.talk.process.kill()
        self.talk.close()
        self.output.close()


@pytest.fixture
def wire(bench: Bench) -> Iterator[Wire]:
    wire = Wire(bench.folder)
    yield wire
    wire.close()


def message(method: str, identity: object, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}).encode()


def running(code: str, identity: object) -> bytes:
    return message("tools/call", identity, name="execute_python", arguments={"code": code})


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


def test_text_that_is_no_unicode_ends_no_server(bench: Bench) -> None:
    """The code chooses what it gives; an answer of the protocol can't hold half of a character."""
    shown = "class Odd:\n    def __repr__(self): return chr(0xd800)\nOdd()"
    attempts = (
        ("execute_python", shown, False),
        ("execute_python", "raise ValueError(chr(0xd800))", True),
        ("execute_python", "import sys; sys.exit(chr(0xd800))", True),
        ("execute_javascript", "throw new Error(String.fromCharCode(0xd800))", True),
        ("run_in_session", "globals()[chr(0xd800)] = (i for i in 'ab')", False),
    )

    async def use() -> None:
        async with Client(server(bench)) as client:
            _, session = await call(client, "create_session")
            for tool, code, fails in attempts:
                words = {"session_id": session} if tool == "run_in_session" else {}
                failed, said = await asyncio.wait_for(call(client, tool, code=code, **words), 30)
                assert (failed, "\\ud800" in said) == (fails, True), said

    asyncio.run(use())


def test_a_line_that_cant_be_read_is_answered_and_ends_nothing(wire: Wire) -> None:
    nested = b"[" * 100_000 + b"]" * 100_000
    for line, identity, code, says in (
        (running("'\ud800'", 1), 1, -32700, "half of a character"),
        (running("'\udc00'", "a"), "a", -32700, "must be JSON"),
        (message("ping", 2, **{"\ud800": 1}), 2, -32700, "half of a character"),
        (message("ping", "\ud800"), None, -32700, "half of a character"),
        (running("'X'", 3).replace(b"X", b"\xff"), 3, -32700, "text in UTF-8, and byte"),
        (b"\xff", None, -32700, "text in UTF-8, and byte 0 isn't"),
        (message("ping", 4, x="X").replace(b'"X"', nested), 4, -32700, "recursion limit"),
        (b'{"params": {"x": %b}, "jsonrpc": "2.0", "id": "b"}' % nested, "b", -32700, "recursion limit"),
        (b"[" * 100_000, None, -32700, "recursion limit"),
        (message("ping", 5, x="X").replace(b'"X"', b"9" * 5000), 5, -32700, "number out of range"),
        (b"hello", None, -32700, "must be JSON: expected value"),
        (b'{"jsonrpc": "2.0", "id": 6, "method": "ping"', 6, -32700, "must be JSON: EOF"),
        (b'{"jsonrpc": "2.0", "id": 7}', 7, -32600, "one request, notification or response"),
        (b'{"jsonrpc": "2.0", "id": 8, "result": 1}', None, -32600, "one request"),
        (b'{"jsonrpc": "1.0", "id": 9, "method": "ping"}', 9, -32600, "one request"),
        (b"[" + message("ping", 10) + b"]", None, -32600, "one request"),
        (message("ping", None), None, -32600, "id must be a text or a whole number"),
        (message("ping", 1.5), None, -32600, "id must be a text or a whole number"),
        (message("ping", 11) + b"\r" + message("ping", 12), 11, -32700, "trailing characters"),
        (message("ping", 13, x="x" * MAX_LINE_BYTES), 13, -32600, "may have 67108864 bytes"),
        (b'{"x": "%b", "jsonrpc": "2.0", "id": 14}' % (b"x" * MAX_LINE_BYTES), 14, -32600, "67108864"),
        (b"x" * (MAX_LINE_BYTES + 1), None, -32600, "may have 67108864 bytes"),
    ):
        answer = wire.ask(line)
        assert set(answer) == {"jsonrpc", "id", "error"}, answer
        assert (answer["id"], answer["error"]["code"]) == (identity, code), answer
        assert says in answer["error"]["message"]
    # A notification has no answer, whatever it is; nor has an answer to what nobody asked.
    for line in (b'{"jsonrpc": "2.0", "method": "notifications/nope"}', b"", b" \r"):
        wire.talk.send(line + b"\n")
    wire.talk.send(b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n')
    answer = wire.ask(running("'é' + '\N{OCTOPUS}'", 20))
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (20, "'é\N{OCTOPUS}'")
    # The last line may lack its end.
    wire.talk.send(message("ping", 21))
    wire.talk.input.close()
    assert json.loads(wire.output.readline()) == {"jsonrpc": "2.0", "id": 21, "result": {}}
    assert wire.output.read() == b""
    assert wire.talk.process.wait(30) == 0


@pytest.mark.parametrize("code", ["1", "while True: pass"], ids=["idle", "busy"])
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_the_server_while_its_client_says_nothing(
    wire: Wire, number: int, status: int, code: str
) -> None:
    if code == "1":
        assert wire.ask(running(code, 1))["result"]["content"][0]["text"] == "1"
    else:
        wire.talk.send(running(code, 1) + b"\n")
        time.sleep(1)
    wire.talk.process.send_signal(number)
    assert wire.talk.process.wait(20) == status
    assert wire.output.read() == b""


def test_a_server_whose_answers_nobody_reads_ends(bench: Bench) -> None:
    for line in (message("ping", 1), b"no message"):
        wire = Wire(bench.folder)
        wire.output.close()
        wire.talk.send(line + b"\n")
        assert wire.talk.process.wait(20) == 0
        wire.talk.close()


def test_the_largest_file_fits_into_a_message_however_it_is_written(wire: Wire) -> None:
    made = wire.ask(message("tools/call", 1, name="create_session", arguments={}))
    words = {
        "session_id": made["result"]["content"][0]["text"],
        "name": "f",
        "content": "\0" * MAX_FILE_BYTES,
    }
    answer = wire.ask(message("tools/call", 2, name="import_file", arguments=words))
    assert answer["result"]["content"][0]["text"] == f"f has {MAX_FILE_BYTES} bytes."


def test_javascript_has_the_same_tools_and_limits_of_its_own(bench: Bench) -> None:
    config = (
        'compute = "LOW"\nallowed_hosts = []\nmax_sessions = 1\n[javascript]\nram = "32MB"\ntimeout = "3s"\n'
    )

    async def use() -> None:
        async with Client(server(bench, config)) as client:
            code = 'console.log("Hello"); const x = 5 + 3; x * 2;'
            assert await call(client, "execute_javascript", code=code) == (False, "Hello\n16")
            for code, says in (
                ("console.log(1)\nmissing", "1\ntask_error: ReferenceError: missing is not defined (<run 1>, line 2)"),
                ("for (;;);", "fuel_exhausted: The task used up its compute: 100000000 units."),
                ("new Uint8Array(64 << 20)", "the task may have 33554432 bytes of memory."),
                ("await new Promise((r) => setTimeout(r, 6e4))", "timeout: The task didn't end within 3000 ms."),
                ("await fetch('http://127.0.0.1')", "permission_denied: PermissionError"),
            ):  # fmt: skip
                failed, said = await call(client, "execute_javascript", code=code)
                assert failed
                assert says in said
            _, session = await call(client, "create_session", language="javascript")
            failed, said = await call(client, "create_session")
            assert failed
            assert "1 sessions are open" in said
            assert await call(
                client, "run_in_session", session_id=session, code="let n = 1; const f = () => ++n"
            ) == (
                False,
                "",
            )
            assert await call(client, "run_in_session", session_id=session, code="f()") == (False, "2")
            await call(client, "reset_session", session_id=session)
            assert (await call(client, "run_in_session", session_id=session, code="f()"))[0]
            await call(client, "close_session", session_id=session)
            assert not (await call(client, "create_session"))[0]
            assert (await call(client, "create_session", language="perl"))[0]

    asyncio.run(use())


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_files_of_a_session_go_in_and_out(bench: Bench, language: str) -> None:
    read = {
        "python": "import os; print(open('in/a.txt').read(), list(open('b', 'rb').read())); open('c', 'w').write('é')",
        "javascript": "import fs from 'fs'; console.log(fs.readFileSync('in/a.txt', 'utf8'), JSON.stringify([...fs.readFileSync('b')]).replaceAll(',', ', ')); fs.writeFileSync('c', 'é')",
    }

    async def use() -> None:
        async with Client(server(bench)) as client:
            _, session = await call(client, "create_session", language=language)

            async def of(tool: str, **arguments: Any) -> tuple[bool, str]:
                return await call(client, tool, session_id=session, **arguments)

            assert await of("import_file", name="in/a.txt", content="ü\n") == (False, "in/a.txt has 3 bytes.")
            assert await of("import_file", name="b", content="AP8=", encoding="base64") == (
                False,
                "b has 2 bytes.",
            )
            failed, said = await of("run_in_session", code=read[language])
            assert (failed, said.splitlines()[:2]) == (False, ["ü", " [0, 255]"])
            assert await of("list_files") == (False, '{"b": 2, "c": 2, "in/a.txt": 3}')
            assert await of("export_file", name="c") == (False, "é")
            assert await of("export_file", name="b", encoding="base64") == (False, "AP8=")
            for tool, arguments, says in (
                ("export_file", {"name": "b"}, "isn't text in UTF-8"),
                ("export_file", {"name": "nope"}, "There is no file 'nope'"),
                ("export_file", {"name": "../x"}, "no name of a file"),
                ("import_file", {"name": "/etc/x", "content": ""}, "no name of a file"),
                ("import_file", {"name": "x", "content": "?", "encoding": "base64"}, "can't be read as base64"),
                ("import_file", {"name": "x", "content": "?", "encoding": "hex"}, "encoding"),
                ("import_file", {"name": "x", "content": "x" * (MAX_FILE_BYTES + 1)}, "A file may have 8388608 bytes"),
                ("delete_file", {"name": "nope"}, "There is no file 'nope'"),
            ):  # fmt: skip
                failed, said = await of(tool, **arguments)
                assert failed
                assert says in said
            assert await of("delete_file", name="b") == (False, "b is deleted.")
            make = {
                "python": f"open('d', 'wb').truncate({MAX_FILE_BYTES + 1})",
                "javascript": f"fs.writeFileSync('d', ''); fs.truncateSync('d', {MAX_FILE_BYTES + 1})",
            }
            assert not (await of("run_in_session", code=make[language]))[0]
            failed, said = await of("export_file", name="d", encoding="base64")
            assert failed
            assert "more than 8388608 bytes" in said
            await of("reset_session")
            assert await of("list_files") == (False, "{}")
            assert (await call(client, "list_files", session_id="nope"))[0]

    asyncio.run(use())


@pytest.mark.parametrize(
    ("language", "begin", "endless"),
    [("python", "x = 1", "x = 2\nwhile True: pass"), ("javascript", "let x = 1; x", "x = 2; for (;;);")],
)
def test_a_cancelled_call_ends_its_code(bench: Bench, language: str, begin: str, endless: str) -> None:
    async def use() -> None:
        async with Client(server(bench, 'timeout = "60s"\n')) as client:
            _, session = await call(client, "create_session", language=language)
            await call(client, "run_in_session", session_id=session, code=begin)
            began = time.monotonic()
            long = asyncio.create_task(call(client, "run_in_session", session_id=session, code=endless))
            await asyncio.sleep(2)
            long.cancel()
            with pytest.raises(asyncio.CancelledError):
                await long
            # Runs of one session wait for each other: that this comes shows that the other is no more.
            assert await call(client, "run_in_session", session_id=session, code="x") == (False, "1")
            assert time.monotonic() - began < 40

    asyncio.run(use())


def test_a_wrong_option_is_said_before_it_serves(bench: Bench) -> None:
    for config, says in (
        ('compute = "SOME"\n', "compute='SOME': it must be LOW"),
        ('[javascript]\nram = "much"\n', "mcp.toml, [javascript]: ram='much': it must be a size"),
        (
            'ram = "much"\n[python]\nram = "64MB"\n[javascript]\nram = "64MB"\n',
            "ram='much': it must be a size",
        ),
        ("python = 1\n", "[python] must be a table"),
        ("max_sessions = 65\n", "from 1 to 64"),
        ("max_sessions = 0\n", "from 1 to 64"),
        ("max_sessions = true\n", "from 1 to 64"),
        ("max_retries = 1\n", "there is no option 'max_retries'"),
        ("[python]\nmax_retries = 1\n", "mcp.toml, [python]: there is no max_retries"),
        (
            "[python]\nmax_sessions = 1\n",
            "mcp.toml, [python]: there is no option 'max_sessions'. Options: compute,",
        ),
        (
            "sessions = 1\n",
            "allowed_hosts, env_variables, max_sessions; and the tables [python] and [javascript]",
        ),
        ("= 1\n", "mcp.toml can't be read"),
    ):
        bench.write("mcp.toml", config)
        result = bench.command("mcp", "--config", "mcp.toml")
        assert result.code == 2
        said = " ".join(result.stderr.decode().split())
        assert says in said
        assert said.startswith("error: mcp.toml")
        assert "Session" not in said
    assert bench.command("mcp", "--config", "nope.toml").code == 2


def test_without_the_package_it_says_how_to_get_it() -> None:
    program = (
        "import sys\nsys.modules['mcp'] = None\n"
        "from capsule_build.cli.capsule.app import run\nsys.exit(run(['mcp']))"
    )
    result = run([sys.executable, "-c", program], check=False)
    assert result.code == 2
    words = shlex.split(result.error_text.splitlines()[-1])
    assert Path(words[0]).samefile(sys.executable)
    assert words[1:-1] == ["-m", "pip", "install"]
    assert words[-1].startswith("mcp<")
