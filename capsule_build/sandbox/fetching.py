"""Requests that a task makes, made by the host: only to what the task was granted, each redirect anew.

The connection goes to the very address that was checked, so that a name can't be resolved twice, to two
things. No proxy of the environment is used: what it would connect to couldn't be checked.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from .hosts import address_allowed, name_allowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MAX_REQUEST_BYTES: Final = 16 << 20
MAX_RESPONSE_BYTES: Final = 64 << 20
MAX_REDIRECTS: Final = 10
MAX_SECONDS: Final = 60.0
"""Of a request with all its redirects, where the task has no shorter time."""

_REDIRECTS: Final = {301, 302, 303, 307, 308}
_CHUNK: Final = 1 << 16
# What describes the connection is the host's to say, and `Host` decides who is asked.
_OWN_HEADERS: Final = {
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "proxy-authorization",
    "proxy-connection",
}
_CREDENTIALS: Final = {"authorization", "cookie"}


class RefusedError(Exception):
    """The task wasn't granted that host."""


class Target(NamedTuple):
    """Where one request goes.

    Attributes:
        url: As it is recorded, without a fragment.
        secure: Whether by TLS.
        host: In lower case.
        port: The port.
        path: Path and query.
    """

    url: str
    secure: bool
    host: str
    port: int
    path: str


def fetch(
    request: dict[str, Any], hosts: Sequence[str], *, deadline: float | None, record: list[dict[str, Any]]
) -> dict[str, Any]:
    """Make a request and follow its redirects.

    Args:
        request: `method`, `url`, `headers` (pairs), `body` (base64 or None), `timeout` (seconds or None).
        hosts: The task's `allowed_hosts`.
        deadline: When the task's time ends, on `time.monotonic`'s clock.
        record: Gets an entry for each request that was sent.

    Returns:
        `status`, `reason`, `url`, `headers` (pairs) and `body` (base64).

    Raises:
        RefusedError: A host, or an address of one, isn't granted.
        ValueError: The request isn't one.
        TimeoutError: It took too long.
        OSError: It failed.
    """
    method, body, headers = _method(request), _body(request), _headers(request)
    limit = time.monotonic() + min(_seconds(request), MAX_SECONDS)
    limit = limit if deadline is None else min(limit, deadline)
    url = request.get("url")
    for _ in range(MAX_REDIRECTS + 1):
        target = parse_target(url)
        status, reason, answered, content = _send(target, method, headers, body, hosts, limit, record)
        location = next((value for name, value in answered if name.lower() == "location"), None)
        if status not in _REDIRECTS or location is None:
            return {
                "status": status,
                "reason": reason,
                "url": target.url,
                "headers": answered,
                "body": base64.b64encode(content).decode(),
            }
        url = urljoin(target.url, location)
        if status == 303 or (status in (301, 302) and method == "POST"):
            method, body = ("HEAD" if method == "HEAD" else "GET"), None
        there = parse_target(url)
        if (there.host, there.port, there.secure) != (target.host, target.port, target.secure):
            headers = [(name, value) for name, value in headers if name.lower() not in _CREDENTIALS]
    raise OSError(f"more than {MAX_REDIRECTS} redirects")


def parse_target(url: Any) -> Target:
    """Take a URL apart.

    Raises:
        ValueError: It isn't one of http or https with a host, or has a user's name in it.
    """
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError(f"{url!r} is no URL: it has characters that must be quoted")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the scheme of {url!r} is not http or https")
    if "@" in parts.netloc:
        raise ValueError(f"{url!r} has a user's name before its host")
    host = (parts.hostname or "").lower().rstrip(".")
    if not host or "%" in host:
        raise ValueError(f"{url!r} has no host")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url.partition("#")[0], secure, host, parts.port or (443 if secure else 80), path)


def _method(request: dict[str, Any]) -> str:
    method = request.get("method")
    if method not in METHODS:
        raise ValueError(f"the method {method!r} is none of {', '.join(METHODS)}")
    return str(method)


def _body(request: dict[str, Any]) -> bytes | None:
    encoded = request.get("body")
    if encoded is None:
        return None
    if not isinstance(encoded, str) or len(encoded) > MAX_REQUEST_BYTES * 4 // 3 + 4:
        raise ValueError(f"a body may have {MAX_REQUEST_BYTES} bytes")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError("the body isn't base64") from None


def _headers(request: dict[str, Any]) -> list[tuple[str, str]]:
    headers = request.get("headers")
    if not isinstance(headers, list) or len(headers) > 100:
        raise ValueError("headers are a list of at most 100 pairs")
    pairs = []
    for pair in headers:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(item, str) for item in pair)):
            raise ValueError("a header is a pair of texts")
        if pair[0].lower() not in _OWN_HEADERS:
            pairs.append((pair[0], pair[1]))
    return pairs


def _seconds(request: dict[str, Any]) -> float:
    seconds = request.get("timeout")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else MAX_SECONDS


def _left(limit: float) -> float:
    left = limit - time.monotonic()
    if left <= 0:
        raise TimeoutError("the request took too long")
    return left


def _send(
    target: Target,
    method: str,
    headers: Sequence[tuple[str, str]],
    body: bytes | None,
    hosts: Sequence[str],
    limit: float,
    record: list[dict[str, Any]],
) -> tuple[int, str, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection(target.host, target.port)
    entry: dict[str, Any] = {"method": method, "url": target.url, "status": None}
    try:
        with _connected(target, hosts, limit) as sock:
            connection.sock = sock
            connection.putrequest(method, target.path, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            elif method in ("POST", "PUT", "PATCH"):
                connection.putheader("Content-Length", "0")
            connection.putheader("Connection", "close")
            record.append(entry)
            connection.endheaders(body)
            response = connection.getresponse()
            entry["status"] = response.status
            content = _read(response)
            # What was cut short by the end of the time is no answer.
            _left(limit)
            return response.status, response.reason, response.getheaders(), content
    except (OSError, http.client.HTTPException) as error:
        _left(limit)
        if isinstance(error, OSError):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise OSError(f"{target.host} doesn't speak HTTP as it should: {reason}") from error
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(_CHUNK):
        size += len(piece)
        if size > MAX_RESPONSE_BYTES:
            raise OSError(f"the answer has more than {MAX_RESPONSE_BYTES} bytes")
        pieces.append(piece)
    return b"".join(pieces)


@contextlib.contextmanager
def _connected(target: Target, hosts: Sequence[str], limit: float) -> Iterator[socket.socket]:
    """Connect, and let go when the time is over: a socket's own timeout begins anew with each byte."""
    plain = _connect(target, hosts, limit)
    # Of the watcher's own: that of the connection can be closed, and its number be another's.
    handle = plain.dup()
    done = threading.Event()

    def watch() -> None:
        if not done.wait(max(0.0, limit - time.monotonic())):
            with contextlib.suppress(OSError):
                handle.shutdown(socket.SHUT_RDWR)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        if target.secure:
            plain = ssl.create_default_context().wrap_socket(plain, server_hostname=target.host)
        yield plain
    finally:
        done.set()
        watcher.join()
        plain.close()
        handle.close()


def _connect(target: Target, hosts: Sequence[str], limit: float) -> socket.socket:
    if not name_allowed(target.host, hosts):
        if "*" in hosts:
            # All names, and all public addresses.
            raise RefusedError(
                f"the address {target.host} isn't public: '*' doesn't stand for it, and it must itself be "
                "named in allowed_hosts"
            )
        granted = ", ".join(hosts) or "none"
        raise RefusedError(f"the host '{target.host}' is not among the task's allowed_hosts ({granted})")
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OSError(f"the host '{target.host}' can't be found: {error}") from error
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not address_allowed(target.host, address, hosts):
            raise RefusedError(
                f"the host '{target.host}' has the address {address}, which isn't public and must itself be "
                "named in allowed_hosts"
            )
    failure: OSError = OSError(f"the host '{target.host}' has no address")
    for address in dict.fromkeys(addresses):
        try:
            plain = socket.create_connection((address, target.port), timeout=_left(limit))
        except OSError as error:
            failure = error
            continue
        # From here on the watcher ends what takes too long.
        plain.settimeout(None)
        return plain
    raise failure
