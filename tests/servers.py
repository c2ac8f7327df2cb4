"""Web servers on loopback that behave as a test says."""

from __future__ import annotations

import contextlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def isolate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this machine's mirrors, proxies and pip configuration out of a test, and retry without waiting."""
    for name in list(os.environ):
        if name.startswith(("CAPSULE_", "PIP_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setattr("capsule_build.fetch.http.BACKOFF_SECONDS", (0.01, 0.01, 0.01))


class Site:
    """A running server: its URL, what it answers by path, and what it was asked.

    Attributes:
        url: Ends in a slash.
        answers: For each path a function that writes the whole answer; without one, 404.
        asked: The paths that were asked for, in order.
        headers: The headers of the last request.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}


def body(
    data: bytes, *, announce: int | None = None, status: int = 200
) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer with `data`, announcing its length or another one (-1: none)."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        length = len(data) if announce is None else announce
        if length >= 0:
            request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(data)

    return answer


def redirect(target: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer that the file is elsewhere."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", target)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def in_turn(*answers: Callable[[BaseHTTPRequestHandler], None]) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer differently each time; the last answer goes on."""
    rest = list(answers)

    def answer(request: BaseHTTPRequestHandler) -> None:
        (rest.pop(0) if len(rest) > 1 else rest[0])(request)

    return answer


@contextlib.contextmanager
def answering(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Run a server on a free port of loopback; give its URL, which ends without a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def serve() -> Iterator[Site]:
    """Run a server on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            site.headers = dict(self.headers.items())
            answer = site.answers.get(self.path, body(b"not here", status=404))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                answer(self)

        def log_message(self, *_: object) -> None:
            return

    with answering(Handler) as url:
        site = Site(f"{url}/")
        yield site
