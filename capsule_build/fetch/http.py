"""Downloads over HTTP: bounded, restarted cleanly, by the user's own proxies and certificates."""

from __future__ import annotations

import base64
import http.client
import os
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Final

from .. import __version__
from .transfer import (
    BLOCK_BYTES,
    MAX_FILE_BYTES,
    NotThereError,
    Sink,
    Transfer,
    UnreachableError,
    WrongFileError,
)

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_SECONDS: Final = 30.0
"""How long a server may stay silent."""

BACKOFF_SECONDS: tuple[float, ...] = (0.5, 1.0, 2.0)
"""The waits before the second and each further attempt."""


class _TransientError(UnreachableError):
    """Worth another attempt."""


def redact(url: str) -> str:
    """Return a URL without the password that may stand in it."""
    parts = urllib.parse.urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urllib.parse.urlunsplit(parts._replace(netloc="***@" + parts.netloc.rpartition("@")[2]))


def download(url: str, destination: Path, *, transfer: Transfer, size: int | None = None) -> None:
    """Download a file, whole. A server that is busy or breaks off is asked again, from the start.

    Proxies come from `https_proxy`, `http_proxy` and `no_proxy`; certificates from `SSL_CERT_FILE` and
    `SSL_CERT_DIR` (read by OpenSSL), else `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE`, else the system.

    Args:
        url: An http or https URL; a user and password in it are sent as basic authentication.
        destination: Where the bytes go; what is there is overwritten.
        transfer: Told about the bytes.
        size: How many bytes must come; without, as many as the server says, up to `MAX_FILE_BYTES`.

    Raises:
        NotThereError: The server answers 404 or 410.
        UnreachableError: It can't be reached, refuses, or breaks off each time.
        WrongFileError: It sends another number of bytes than `size`.
        StorageError: The file can't be written.
        CancelledError: The transfer was called off.
    """
    waits = iter(BACKOFF_SECONDS)
    while True:
        try:
            _attempt(url, destination, transfer, size)
            return
        except _TransientError as error:
            wait = next(waits, None)
            if wait is None:
                raise UnreachableError(error.message, hint=error.hint) from error
            transfer.wait(wait)


def _attempt(url: str, destination: Path, transfer: Transfer, size: int | None) -> None:
    transfer.check()
    shown = redact(url)
    try:
        with _opener().open(_request(url), timeout=TIMEOUT_SECONDS) as response:
            _receive(response, destination, transfer, size, shown)
    except urllib.error.HTTPError as error:
        error.close()
        raise _status_error(shown, error.code, error.reason) from error
    except urllib.error.URLError as error:
        raise _connection_error(shown, error.reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise _connection_error(shown, error) from error


def _receive(
    response: http.client.HTTPResponse, destination: Path, transfer: Transfer, size: int | None, shown: str
) -> None:
    announced = response.headers.get("Content-Length", "")
    expected = int(announced) if announced.isdecimal() else size
    if size is not None and expected != size:
        raise WrongFileError(f"{shown} has {expected} bytes instead of {size}.")
    limit = MAX_FILE_BYTES if size is None else size
    with Sink(destination, transfer, limit=limit, source=shown) as sink:
        while block := response.read1(BLOCK_BYTES):
            sink.write(block)
    if expected is not None and sink.done < expected:
        raise _TransientError(f"{shown} broke off after {sink.done} of {expected} bytes.")


def _request(url: str) -> urllib.request.Request:
    parts = urllib.parse.urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    bare = urllib.parse.urlunsplit(parts._replace(netloc=host))
    headers = {"User-Agent": f"capsule-build/{__version__}", "Accept-Encoding": "identity"}
    request = urllib.request.Request(bare, headers=headers)  # noqa: S310 - the opener below knows http and https only
    if login:
        token = base64.b64encode(urllib.parse.unquote(login).encode()).decode("ascii")
        # Not sent on to where a redirect leads.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _opener() -> urllib.request.OpenerDirector:
    # urllib's default opener would follow a redirect to ftp, and open file: and data: URLs.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=_certificates()),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _certificates() -> ssl.SSLContext:
    named = None
    if "SSL_CERT_FILE" not in os.environ:
        named = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    try:
        return ssl.create_default_context(cafile=named)
    except OSError as error:
        raise UnreachableError(
            f"The certificates in {named}, which REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE names, can't be read: "
            f"{error.strerror or error}."
        ) from error


def _status_error(shown: str, status: int, reason: str) -> UnreachableError | NotThereError:
    if status in {404, 410}:
        return NotThereError(f"{shown} isn't there (status {status}).")
    text = f"{shown} can't be had: the server answers {status} {reason}".rstrip() + "."
    return _TransientError(text) if status >= 500 else UnreachableError(text)


def _connection_error(shown: str, reason: object) -> UnreachableError:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return UnreachableError(
            f"{shown} can't be had: its certificate isn't trusted ({reason.verify_message}).",
            hint="Behind a proxy with certificates of its own, name their file with SSL_CERT_FILE.",
        )
    said = (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
    if isinstance(reason, str) or not isinstance(reason, (OSError, http.client.HTTPException)):
        return UnreachableError(f"{shown} can't be had: {said}.")
    unknown_host = isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME
    return (UnreachableError if unknown_host else _TransientError)(
        f"{shown} can't be reached: {said}.",
        hint="Check the network, and the proxies in https_proxy, http_proxy and no_proxy.",
    )
