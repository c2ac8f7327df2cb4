"""A bundle that a server has, a store to get it into, and servers that misbehave.

`site` and `store` are fixtures: a test module imports them.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import Resolved, Store
from capsule_build.runtime.download import Downloader
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import Capsule, Variant
from tests.servers import Site, body, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

DATA = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(256)) * 40
NAME = "node24-v1-linux-x86_64-musl.tar.gz"
PLATFORM = Platform("x86_64", "musl")


def resolved(*urls: str, data: bytes = DATA) -> Resolved:
    variant = Variant(NAME, hashlib.sha256(data).hexdigest(), len(data), "/tmp/x", urls)
    return Resolved("node24-v1", PLATFORM, Capsule("node24", "24.19.0", (), {PLATFORM: variant}), variant)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with serve() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data", downloader=Downloader(timeout=0.5, rounds=3, pause=0.01))


def names(store: Store) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir()) if store.folder.exists() else []


def ranges(data: bytes = DATA) -> Callable[[BaseHTTPRequestHandler], None]:
    """A server that knows parts, as it should."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        start = int(asked[6:-1]) if asked else 0
        request.send_response(206 if asked else 200)
        if asked:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        request.wfile.write(data[start:])

    return answer


def cut_off(at: int, data: bytes = DATA) -> Callable[[BaseHTTPRequestHandler], None]:
    """A server that announces all, sends some, and closes."""
    return body(data[:at], announce=len(data))


def stalling(at: int, data: bytes = DATA) -> Callable[[BaseHTTPRequestHandler], None]:
    """A server that sends some, and then nothing any more."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        cut_off(at, data)(request)
        request.wfile.flush()
        time.sleep(1.0)

    return answer
