"""Downloads of bundles over HTTP, from several URLs, gone on with where they broke off.

Nothing that a server says is trusted: a length that isn't the bundle's is refused before its bytes are taken,
and the digest has the last word. A redirect may not leave HTTP, nor HTTPS for HTTP. Proxies come from the
usual variables (`http_proxy`, `https_proxy`, `no_proxy`), further certificate authorities from
`SSL_CERT_FILE`, `SSL_CERT_DIR`, `REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE`.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import urlsplit

from .errors import DigestError, InputError
from .files import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from http.client import HTTPMessage

    from .registry_parts import File

_CA_FILES: Final = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_RANGE = re.compile(r"bytes ([0-9]+)-([0-9]+)/([0-9]+|\*)")
_TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_READ_BYTES: Final = 1 << 18


class _TransferError(Exception):
    """One attempt at one URL failed; the text says why.

    Attributes:
        again: Whether the same URL is worth another attempt.
        unsatisfiable: Whether the server has no such part of the file (status 416).
    """

    def __init__(self, reason: str, *, again: bool, unsatisfiable: bool = False) -> None:
        super().__init__(reason)
        self.again = again
        self.unsatisfiable = unsatisfiable


class Downloader:
    """Downloads bundles.

    Args:
        timeout: Seconds without a byte after which a server is given up.
        rounds: How often all URLs are gone through.
        pause: Seconds before the second round; each later one waits twice as long.
    """

    def __init__(self, *, timeout: float = 30.0, rounds: int = 3, pause: float = 1.0) -> None:
        self._timeout = timeout
        self._rounds = rounds
        self._pause = pause

    def bundle(
        self, variant: File, part: IO[bytes], progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Fill a file with a variant's bytes; what is in it already is gone on with, if it turns out right.

        Args:
            variant: What the registry lock says of the bundle.
            part: The file, open for reading and writing, at any position.
            progress: Is told the bytes that are there, and how many it will be.

        Raises:
            DigestError: Whole bundles came, all of them with other digests.
            InputError: No URL gave the bundle; the message has each one's reason.
            OSError: The file can't be written.
        """
        attempt = _BundleAttempt(variant, part, progress or _silence)
        self._everywhere(variant.urls, lambda url: attempt.load(self._open, url), variant.filename)

    def document(self, urls: Sequence[str], limit: int) -> bytes:
        """Return a small file from the first URL that has it.

        Raises:
            InputError: No URL has it, or it has more than `limit` bytes.
        """
        loaded: list[bytes] = []

        def load(url: str) -> None:
            with self._open(url, {}) as reply:
                data = _read(reply, limit + 1)
            if len(data) > limit:
                raise _TransferError(f"it has more than {limit} bytes", again=False)
            loaded.append(data)

        self._everywhere(urls, load, urls[0].rpartition("/")[2])
        return loaded[0]

    def _everywhere(self, urls: Sequence[str], load: Callable[[str], None], what: str) -> None:
        """Try every URL, again and again where that has sense, until one succeeds."""
        reasons: dict[str, _TransferError] = {}
        for number in range(self._rounds):
            if number:
                time.sleep(self._pause * 2 ** (number - 1))
            for url in urls:
                if url in reasons and not reasons[url].again:
                    continue
                try:
                    load(url)
                except _TransferError as error:
                    reasons[url] = error
                else:
                    return
            if not any(reason.again for reason in reasons.values()):
                break
        listed = "\n".join(f"  {url}: {reasons[url]}" for url in urls)
        kind = (
            DigestError if all(isinstance(one, _OtherDigestError) for one in reasons.values()) else InputError
        )
        raise kind(f"'{what}' can't be downloaded:\n{listed}")

    def _open(self, url: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        request = urllib.request.Request(url, headers={"User-Agent": "agentcompass-capsule", **headers})  # noqa: S310 (http and https only: the registry lock and the redirect handler see to it)
        opener = urllib.request.build_opener(_Redirects(), _Https())
        try:
            reply: http.client.HTTPResponse = opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            error.close()
            raise _TransferError(
                f"the server answers {error.code} {error.reason}",
                again=error.code in _TEMPORARY,
                unsatisfiable=error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE,
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
            raise _TransferError(_said(error), again=True) from error
        return reply


class _OtherDigestError(_TransferError):
    """The whole file came, and is another one."""


class _BundleAttempt:
    """A bundle's file, and the attempts to fill it."""

    def __init__(self, variant: File, part: IO[bytes], progress: Callable[[int, int], None]) -> None:
        self._variant = variant
        self._part = part
        self._progress = progress

    def load(self, connect: Callable[[str, dict[str, str]], http.client.HTTPResponse], url: str) -> None:
        """Load what is missing from a URL, and check the whole.

        Raises:
            _TransferError: It failed; the file then holds only bytes that may be gone on with.
        """
        have = self._part.seek(0, os.SEEK_END)
        if have > self._variant.size:
            have = self._restart()
        if have and self._attempt(connect, url, have):
            return
        if not self._attempt(connect, url, self._restart()):
            raise _OtherDigestError(
                f"its SHA-256 is not {self._variant.sha256}, which the registry lock says", again=False
            )

    def _attempt(
        self, connect: Callable[[str, dict[str, str]], http.client.HTTPResponse], url: str, have: int
    ) -> bool:
        """Load what is missing behind the first `have` bytes; return whether the whole is right then.

        False with `have` above 0: those bytes may be the wrong ones, or the server has no parts.
        """
        if have < self._variant.size:
            try:
                reply = connect(url, {"Range": f"bytes={have}-"} if have else {})
            except _TransferError as error:
                if have and error.unsatisfiable:
                    return False
                raise
            with reply:
                if not self._accept(reply, have):
                    return False
                self._receive(reply)
        if self._digest() == self._variant.sha256:
            return True
        self._restart()
        return False

    def _accept(self, reply: http.client.HTTPResponse, have: int) -> bool:
        """Check what a reply announces. False: it is another part than was asked for."""
        if reply.status == http.client.PARTIAL_CONTENT:
            announced = _RANGE.fullmatch(reply.headers.get("Content-Range", ""))
            if (
                announced is None
                or (int(announced[1]), int(announced[2])) != (have, self._variant.size - 1)
                or announced[3] not in (str(self._variant.size), "*")
            ):
                if have:
                    return False
                raise _TransferError("the server sends a part where the whole was asked for", again=False)
        elif reply.status == http.client.OK:
            # It knows nothing of ranges: it sends all of it.
            have = self._restart()
        else:
            raise _TransferError(f"the server answers {reply.status} {reply.reason}", again=False)
        if reply.headers.get("Content-Encoding", "identity") != "identity":
            raise _TransferError("the server sends it in another encoding than was asked for", again=False)
        length = reply.headers.get("Content-Length")
        if length is not None and length != str(self._variant.size - have):
            raise _TransferError(
                f"the server announces {length} bytes where {self._variant.size - have} are due", again=False
            )
        return True

    def _receive(self, reply: http.client.HTTPResponse) -> None:
        while True:
            have = self._part.tell()
            self._progress(have, self._variant.size)
            chunk = _read(reply, min(_READ_BYTES, self._variant.size - have + 1))
            if not chunk:
                break
            if have + len(chunk) > self._variant.size:
                self._restart()
                raise _TransferError(f"more than its {self._variant.size} bytes came", again=False)
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._part.write(rest) :]
        if have < self._variant.size:
            raise _TransferError(
                f"the connection ended after {have} of {self._variant.size} bytes", again=True
            )

    def _restart(self) -> int:
        self._part.seek(0)
        self._part.truncate()
        return 0

    def _digest(self) -> str:
        self._part.seek(0)
        digest = hashlib.sha256()
        while chunk := self._part.read(CHUNK_BYTES):
            digest.update(chunk)
        return digest.hexdigest()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects within HTTP and HTTPS, and never from HTTPS to HTTP."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after not in ("http", "https") or (before == "https" and after == "http"):
            fp.close()
            raise _TransferError(f"the server redirects from {before} to {after or 'no scheme'}", again=False)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Https(urllib.request.HTTPSHandler):
    """Loads certificates only when they are needed: that takes longer than a small download."""

    def __init__(self) -> None:
        urllib.request.AbstractHTTPHandler.__init__(self)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(http.client.HTTPSConnection, req, context=_tls_context())


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in _CA_FILES:
        path = os.environ.get(name)
        if path:
            try:
                context.load_verify_locations(*((None, path) if Path(path).is_dir() else (path,)))
            except OSError as error:
                raise InputError(f"The certificates that {name} names can't be read: '{path}'.") from error
    return context


def _read(reply: http.client.HTTPResponse, size: int) -> bytes:
    try:
        return reply.read(size)
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException) as error:
        raise _TransferError(_said(error), again=True) from error


def _said(error: Exception) -> str:
    """Return why a connection failed, in a line."""
    reason: object = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError):
        return "the server sends nothing"
    if isinstance(reason, OSError) and reason.strerror:
        return f"it can't be reached: {reason.strerror}"
    return f"it can't be reached: {reason}"


def _silence(_done: int, _total: int) -> None:
    """Tell nobody."""
