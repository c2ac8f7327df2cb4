"""Running files of tasks in a test, in this process or as a command; and a server that they can ask."""

from __future__ import annotations

import http.server
import json
import os
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from capsule_build.runtime.errors import CapsuleError
from capsule_build.runtime.process import Result, run
from capsule_build.sandbox.request import Request, perform

if TYPE_CHECKING:
    import ssl

HEAD = "from capsule import task\n"
LONG = f"{HEAD}@task(name='main', compute='HIGH')\ndef main(*_):\n    print('begun', flush=True)\n    while True: pass\n"
"""A file whose task says that it has begun, and then has much to do."""

CAPSULE = Path(sys.executable).with_name("capsule")


class Bench:
    """A working folder.

    Attributes:
        folder: Its path.
        printed: What the last tasks printed, by 1 and 2.
        events: What became of the last tasks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: dict[int, bytes] = {1: b"", 2: b""}
        self.events: list[tuple[str, str]] = []

    def write(self, name: str, text: str) -> Path:
        """Write a file of the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    def run(self, name: str, *args: Any, **more: Any) -> dict[str, Any]:
        """Run a file of the folder, here, and return the envelope."""
        pieces: dict[int, list[bytes]] = {1: [], 2: []}
        self.events = []
        try:
            return perform(
                Request(name, args, working=str(self.folder), **more),
                output=lambda number, data: pieces[number].append(data),
                event=lambda task, state: self.events.append((task, state)),
                say=lambda _text: None,
            )
        finally:
            self.printed = {number: b"".join(said) for number, said in pieces.items()}

    def task(self, body: str, *args: Any, options: str = "", **more: Any) -> dict[str, Any]:
        """Run a task `main(*args)` with a body, here."""
        indented = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
        self.write("file.py", f"{HEAD}@task(name='main', {options})\ndef main(*args):\n{indented}")
        return self.run("file.py", *args, **more)

    def refused(self, name: str, **more: Any) -> str:
        """Return why a file can't be run."""
        try:
            envelope = self.run(name, **more)
        except CapsuleError as error:
            return str(error)
        raise AssertionError(envelope)

    def command(self, *words: str | Path, env: dict[str, str] | None = None, **more: Any) -> Result:
        """Run `capsule` with words in the folder."""
        whole = {**os.environ, **(env or {})}
        return run([str(CAPSULE), *map(str, words)], cwd=self.folder, env=whole, check=False, **more)


def last_line(result: Result) -> dict[str, Any]:
    """The envelope that a command printed last."""
    envelope: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return envelope


def error_of(envelope: dict[str, Any]) -> tuple[str, str]:
    """The type and message of a failure."""
    assert not envelope["success"], envelope
    return envelope["error"]["error_type"], envelope["error"]["message"]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def _do(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        self.server.asked.append((self.command, self.path, dict(self.headers), body))
        if parts.path == "/to":
            self.send_response(int(query.get("status", ["302"])[0]))
            self.send_header("Location", query["url"][0])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if parts.path == "/to-itself":
            self.send_response(302)
            self.send_header("Location", "/to-itself")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if parts.path == "/drip":
            # A header that never ends, slower than any timeout of a single read would notice.
            self.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
            while not self.server.closing.wait(0.05):
                self.wfile.write(b"x")
            return
        if parts.path == "/slow":
            self.send_response(200)
            self.end_headers()
            for _ in range(200):
                if self.server.closing.wait(0.1):
                    return
                self.wfile.write(b".")
            return
        if parts.path == "/big":
            self.send_response(200)
            self.end_headers()
            piece = b"x" * (1 << 20)
            for _ in range(int(query["mb"][0])):
                self.wfile.write(piece)
            return
        answer = b"not here" if parts.path == "/404" else body or b'{"hello": "world"}'
        self.send_response(404 if parts.path == "/404" else 200)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("X-Method", self.command)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def __getattr__(self, name: str) -> Any:
        # `do_GET` and the like: all methods are answered alike.
        if name.startswith("do_"):
            return self._do
        raise AttributeError(name)

    def log_message(self, *_args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.closing = threading.Event()

    def handle_error(self, *_args: object) -> None:
        """A client that goes away in the middle is what some tests are about."""


class Web:
    """A server, and what it was asked.

    Args:
        context: Speaks TLS by it.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._server = _Server()
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[tuple[str, str, dict[str, str], bytes]]:
        """Requests so far: method, path, headers, body."""
        return self._server.asked
