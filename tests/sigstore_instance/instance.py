"""The instance: its services behind one server on loopback, and how it can be made to fail."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tests.servers import answering
from tests.sigstore_instance.authority import Authority, Habits
from tests.sigstore_instance.identities import Provider
from tests.sigstore_instance.keys import LogKey
from tests.sigstore_instance.log import Tree, add_v1, add_v2
from tests.sigstore_instance.timestamps import Timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IDENTITY = "maintainer@example.org"
ISSUER = "https://issuer.example.org"
PAGE = "<html>As a proxy answers that is in the way.</html>"
CI_SECRET = "the CI's own secret"


@dataclass
class RefusalError(Exception):
    """An answer other than what was asked for."""

    status: int
    message: str


class Instance:
    """A running instance.

    Attributes:
        url: Where all its services are.
        provider: The OIDC provider.
        habits: How certificates are made.
        clock: Seconds that the logs and the timestamp authority are ahead.
        faults: What a service does instead of its work, or before: an answer to give, `hang`, `rubbish`, or
            a function to call. Services are `fulcio`, `rekor`, `tsa` and `oidc`.
        asked: The services that were asked, in order.
        ending: Set when the instance ends: whoever hangs stops then.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.provider = Provider(ISSUER, IDENTITY)
        self.habits = Habits()
        self.clock = 0.0
        self.faults: dict[str, RefusalError | str | Callable[[], None]] = {}
        self.asked: list[str] = []
        self.ending = threading.Event()
        self.ct_log = LogKey()
        self._fulcio = Authority("fulcio")
        # Checkpoints are signed by a name that is a part of the log's URL.
        self._v1, self._v2 = Tree(urlsplit(url).netloc), Tree(urlsplit(url).netloc)
        self._timestamps = Timestamps()

    def trusted_root(self) -> dict[str, object]:
        """What those are given who should trust the instance."""
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [tree.key.described(self.url) for tree in (self._v1, self._v2)],
            "certificateAuthorities": [self._fulcio.described(self.url)],
            "ctlogs": [self.ct_log.described(self.url)],
            "timestampAuthorities": [self._timestamps.described(self.url)],
        }

    def write_trusted_root(self, path: Path) -> Path:
        path.write_text(json.dumps(self.trusted_root()))
        return path

    def write_trust_config(
        self, path: Path, *, rekor: int = 1, tsa: bool = False, root: dict[str, object] | None = None
    ) -> Path:
        """Write a client trust configuration.

        Args:
            path: The file.
            rekor: The log's version: 1 or 2.
            tsa: Whether signatures are timestamped.
            root: Another trusted root.
        """

        def service(path: str, version: int = 1) -> dict[str, object]:
            start = {"start": "2020-01-01T00:00:00Z"}
            url = self.url + path
            return {"url": url, "majorApiVersion": version, "validFor": start, "operator": "tests"}

        config = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": root or self.trusted_root(),
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service("")],
                "oidcUrls": [service("/oidc")],
                "rekorTlogUrls": [service("", rekor)],
                "tsaUrls": [service("/tsa")] if tsa else [],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
        }
        path.write_text(json.dumps(config))
        return path

    def post(self, path: str, body: bytes, authorization: str) -> tuple[bytes, str]:
        """Do what a request asks for; returns the answer and its type."""
        if path == "/tsa":
            self._begin("tsa")
            return self._timestamps.answer(body, time.time() + self.clock), "application/timestamp-reply"
        if path == "/oidc/token":
            self._begin("oidc")
            return _json(self.provider.redeem(body))
        document = json.loads(body)
        if path == "/api/v2/signingCert":
            self._begin("fulcio")
            return _json(self._certify(document, authorization.removeprefix("Bearer ")))
        if path == "/api/v1/log/entries":
            self._begin("rekor")
            return _json(add_v1(self._v1, document, time.time() + self.clock))
        if path == "/api/v2/log/entries":
            self._begin("rekor")
            return _json(add_v2(self._v2, document))
        raise RefusalError(404, path)

    def get(self, path: str, authorization: str) -> tuple[bytes, str]:
        """Do what a request without a body asks for."""
        self._begin("oidc")
        if path == "/oidc/.well-known/openid-configuration":
            return _json(self.provider.configuration(self.url))
        if path.startswith("/ci-token") and authorization == f"bearer {CI_SECRET}":
            return _json({"value": self.provider.token()})
        raise RefusalError(401, "who asks?")

    def _certify(self, request: dict[str, str], token: str) -> dict[str, object]:
        try:
            identity, issuer = self.provider.check(token)
        except jwt.InvalidTokenError as error:
            # As an authority that says too much would: a client must not repeat it.
            raise RefusalError(
                401, f"There was an error processing the identity token {token}: {error}"
            ) from error
        csr = x509.load_pem_x509_csr(base64.b64decode(request["certificateSigningRequest"]))
        assert csr.is_signature_valid
        leaf = self._fulcio.signing_certificate(csr.public_key(), identity, issuer, self.ct_log, self.habits)
        chain = [
            item.public_bytes(serialization.Encoding.PEM).decode()
            for item in (leaf, self._fulcio.certificate)
        ]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _begin(self, service: str) -> None:
        self.asked.append(service)
        fault = self.faults.get(service)
        if fault == "hang":
            self.ending.wait(60)
        elif callable(fault):
            fault()
        elif fault == "rubbish":
            raise RefusalError(200, PAGE)
        elif isinstance(fault, RefusalError):
            raise fault


def _json(value: object) -> tuple[bytes, str]:
    return json.dumps(value).encode(), "application/json"


@contextlib.contextmanager
def running() -> Iterator[Instance]:
    """Run an instance on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if self.path.startswith("/oidc/auth"):
                self.send_response(302)
                self.send_header("Location", instance.provider.authorize(self.path))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self._answer(lambda authorization: instance.get(self.path, authorization))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(lambda authorization: instance.post(self.path, body, authorization), 201)

        def _answer(self, work: Callable[[str], tuple[bytes, str]], status: int = 200) -> None:
            try:
                data, kind = work(self.headers.get("Authorization", ""))
            except RefusalError as refusal:
                status = refusal.status
                data, kind = _json({"code": refusal.status, "message": refusal.message})
                if refusal.message == PAGE:
                    data, kind = PAGE.encode(), "text/html"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    with answering(Handler) as url:
        instance = Instance(url)
        try:
            yield instance
        finally:
            instance.ending.set()
