"""Downloads through a proxy, and from servers whose certificates are to be checked."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import InputError, Store
from tests.downloads import DATA, resolved, site, store
from tests.integration.certificates import write_authority
from tests.servers import Site, body, redirect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["site", "store"]


def test_a_proxy_is_taken_from_the_usual_variable(
    store: Store, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", site.url)
    site.answers["http://bundles.invalid/a"] = body(DATA)
    assert store.get(resolved("http://bundles.invalid/a")).read_bytes() == DATA


@pytest.fixture
def tls_site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server that speaks TLS, and the authority that signed its certificate."""
    authority = write_authority(tmp_path, "server")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (redirect("http://127.0.0.1:1/a") if self.path == "/plain" else body(DATA))(self)

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Whoever doesn't trust the certificate hangs up."""

    server = Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://localhost:{server.server_address[1]}/", authority
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_certificate_that_nobody_knows_is_refused(
    store: Store, site: Site, tls_site: tuple[str, Path]
) -> None:
    with pytest.raises(InputError, match="CERTIFICATE_VERIFY_FAILED"):
        store.get(resolved(f"{tls_site[0]}a"))


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_an_authority_is_taken_from_the_usual_variables(
    store: Store, site: Site, tls_site: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tls_site[1]))
    assert store.get(resolved(f"{tls_site[0]}a")).read_bytes() == DATA


def test_a_redirect_from_https_to_http_is_refused(
    store: Store, site: Site, tls_site: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls_site[1]))
    with pytest.raises(InputError, match="redirects from https to http"):
        store.get(resolved(f"{tls_site[0]}plain"))


def test_certificates_that_can_t_be_read_are_said(
    store: Store, tls_site: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere.pem")
    with pytest.raises(InputError, match="REQUESTS_CA_BUNDLE"):
        store.get(resolved(f"{tls_site[0]}a"))
