"""The store, and downloads from servers that misbehave."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import tempfile
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from capsule_build.runtime import DigestError, InputError, Resolved, SignatureError, Store, UsageError
from capsule_build.runtime.download import Downloader
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import Capsule, Variant
from tests.integration.certificates import write_authority
from tests.nobody import as_nobody
from tests.servers import Site, body, in_turn, redirect, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


# A bundle that is there


def test_a_bundle_that_is_there_is_hashed_and_no_server_is_asked(store: Store, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(DATA)
    before = (store.folder / NAME).stat()
    assert store.get(resolved(f"{site.url}a")) == store.folder / NAME
    assert (store.folder / NAME).stat() == before
    assert names(store) == [NAME]
    assert site.asked == []


def test_a_read_only_data_folder_with_a_good_bundle_serves(site: Site) -> None:
    with tempfile.TemporaryDirectory() as made:
        # Not below pytest's own folder, which is its user's alone.
        Path(made).chmod(0o755)
        store = Store(Path(made, "data"))
        store.folder.mkdir(parents=True)
        (store.folder / NAME).write_bytes(DATA)
        (store.folder / NAME).chmod(0o444)
        store.folder.chmod(0o555)
        store.folder.parent.chmod(0o555)
        try:
            assert as_nobody(lambda: store.get(resolved(f"{site.url}a")).name) == NAME
        finally:
            store.folder.parent.chmod(0o755)
            store.folder.chmod(0o755)
    assert site.asked == []


def test_a_wrong_digest_is_an_error_and_the_file_is_left_alone(store: Store, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"x" * len(DATA))
    site.answers["/a"] = body(DATA)
    with pytest.raises(DigestError) as caught:
        store.get(resolved(f"{site.url}a"))
    assert hashlib.sha256(b"x" * len(DATA)).hexdigest() in str(caught.value)
    assert f"capsule fetch node24-v1 --platform {PLATFORM} --replace\n" in str(caught.value)
    assert caught.value.exit_code == 3
    assert (store.folder / NAME).read_bytes() == b"x" * len(DATA)
    assert site.asked == []


@pytest.mark.parametrize("old", [b"x" * len(DATA), b"short"])
def test_a_superseded_bundle_is_replaced_when_asked_for(store: Store, site: Site, old: bytes) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(old)
    site.answers["/a"] = body(DATA)
    assert store.get(resolved(f"{site.url}a"), replace=True).read_bytes() == DATA
    assert names(store) == [NAME]


def test_replacing_keeps_the_old_bundle_when_the_new_one_can_t_be_had(store: Store, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"old")
    with pytest.raises(InputError, match="404"):
        store.get(resolved(f"{site.url}a"), replace=True)
    assert (store.folder / NAME).read_bytes() == b"old"


def test_a_folder_in_a_bundle_s_place(store: Store) -> None:
    (store.folder / NAME).mkdir(parents=True)
    with pytest.raises(InputError, match="can't be read"):
        store.get(resolved())


def test_without_a_url_the_bundle_must_be_put_there(store: Store) -> None:
    with pytest.raises(InputError, match="has no URL") as caught:
        store.get(resolved())
    command = f"capsule fetch node24-v1 --from dist/{NAME}"
    assert caught.value.hint == (
        "'capsule-build node24 --libc musl' builds it; this, with your --lock and --data-dir, puts it into "
        f"the store:\n{command}"
    )
    # A damaged one is not said to be absent, and the same command mends it.
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"x" * len(DATA))
    for replacing in (False, True):
        with pytest.raises(InputError) as caught:
            store.get(resolved(), replace=replacing)
        assert str(store.folder / NAME) in caught.value.message
        assert f"{command} --replace" in str(caught.value.hint)
        assert (store.folder / NAME).read_bytes() == b"x" * len(DATA)


# A bundle that lies elsewhere


def test_a_bundle_is_put_into_a_store_that_is_not_there_yet(store: Store, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.write_bytes(DATA)
    assert not store.has(resolved())
    path = store.add(resolved(), built)
    assert (path, path.read_bytes(), names(store)) == (store.folder / NAME, DATA, [NAME])
    assert path.stat().st_mode & 0o777 == 0o644
    assert store.has(resolved())
    before = path.stat()
    assert store.add(resolved(), built).stat() == before


@pytest.mark.parametrize("data", [b"x" * len(DATA), DATA[:-1], b""], ids=["other", "short", "empty"])
def test_another_file_is_not_put_into_the_store(store: Store, tmp_path: Path, data: bytes) -> None:
    built = tmp_path / "built"
    built.write_bytes(data)
    with pytest.raises(DigestError, match=f"'{built}' is not the bundle of 'node24-v1'"):
        store.add(resolved(), built)
    assert names(store) == []


@pytest.mark.parametrize("data", [b"x" * len(DATA), DATA[:-1]], ids=["other", "short"])
def test_another_file_is_an_error_also_where_the_bundle_is_there(
    store: Store, tmp_path: Path, data: bytes
) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(DATA)
    before = (store.folder / NAME).stat()
    wrong = tmp_path / "wrong"
    wrong.write_bytes(data)
    with pytest.raises(DigestError, match=f"'{wrong}' is not the bundle of 'node24-v1'"):
        store.add(resolved(), wrong)
    with pytest.raises(DigestError, match=f"'{wrong}' is not the bundle of 'node24-v1'"):
        store.add(resolved(), wrong, replace=True)
    assert ((store.folder / NAME).stat(), names(store)) == (before, [NAME])


@pytest.mark.parametrize("there", [True, False])
def test_a_file_that_is_not_there_is_wrong_usage(store: Store, tmp_path: Path, *, there: bool) -> None:
    store.folder.mkdir(parents=True)
    if there:
        (store.folder / NAME).write_bytes(DATA)
    for absent in (tmp_path / "absent", tmp_path):
        with pytest.raises(UsageError, match=f"The file '{absent}' can't be read"):
            store.add(resolved(), absent)


def test_a_damaged_bundle_is_replaced_by_a_file_only_when_asked_for(store: Store, tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.write_bytes(DATA)
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(b"damaged")
    with pytest.raises(DigestError, match="is not the bundle"):
        store.add(resolved(), built)
    assert (store.folder / NAME).read_bytes() == b"damaged"
    assert store.add(resolved(), built, replace=True).read_bytes() == DATA
    assert names(store) == [NAME]


# Downloads


def test_an_absent_bundle_is_downloaded_and_then_found(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    told: list[tuple[int, int]] = []
    path = store.get(resolved(f"{site.url}a"), progress=lambda *said: told.append(said))
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(store) == [NAME]
    assert told[0] == (0, len(DATA))
    assert told[-1] == (len(DATA), len(DATA))
    store.get(resolved(f"{site.url}a"))
    assert site.asked == ["/a"]


def test_a_body_without_a_length_is_taken(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA, announce=-1)
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA


def test_the_next_url_is_asked_when_one_fails(store: Store, site: Site) -> None:
    site.answers["/b"] = body(DATA)
    assert store.get(resolved(f"{site.url}a", f"{site.url}b")).read_bytes() == DATA
    assert site.asked == ["/a", "/b"]


def other_encoding(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Encoding", "gzip")
    request.send_header("Content-Length", str(len(DATA)))
    request.end_headers()
    request.wfile.write(DATA)


def no_http(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"SSH-2.0-x\r\n\r\n")


BAD: dict[str, tuple[Callable[[BaseHTTPRequestHandler], None], str]] = {
    "404": (body(b"", status=404), "answers 404"),
    "500": (body(b"", status=500), "answers 500"),
    "closes early": (cut_off(1000), "ended after"),
    "closes at once": (cut_off(0), "ended after 0 of"),
    "stalls": (stalling(1000), "sends nothing"),
    "a wrong body": (body(b"x" * len(DATA)), "its SHA-256 is not"),
    "a longer length": (body(DATA + b"x"), f"announces {len(DATA) + 1} bytes"),
    "a shorter length": (body(DATA[:-1]), f"announces {len(DATA) - 1} bytes"),
    "more than all": (body(DATA + b"x" * 5000, announce=-1), "more than its"),
    "less than all": (body(DATA[:-1], announce=-1), "ended after"),
    "an empty body": (body(b""), "announces 0 bytes"),
    "to a file": (redirect("file:///etc/passwd"), "file:///etc/passwd' is not allowed"),
    "to ftp": (redirect("ftp://127.0.0.1/x"), "redirects from http to ftp"),
    "nowhere": (redirect("data:,x"), "is not allowed"),
    "in circles": (redirect("/a"), "answers 302"),
    "another encoding": (other_encoding, "another encoding"),
    "no HTTP": (no_http, "can't be reached"),
    "a part unasked": (body(DATA, status=206), "a part where the whole was asked for"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_server_that_misbehaves_is_said_and_leaves_no_bundle(store: Store, site: Site, kind: str) -> None:
    answer, said = BAD[kind]
    site.answers["/a"] = answer
    with pytest.raises(InputError) as caught:
        store.get(resolved(f"{site.url}a"))
    assert said in str(caught.value)
    assert f"{site.url}a" in str(caught.value)
    assert NAME not in names(store)
    assert isinstance(caught.value, DigestError) == (kind == "a wrong body")
    # The next one succeeds, whatever was left.
    site.answers["/a"] = ranges()
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA
    assert names(store) == [NAME]


@pytest.mark.parametrize("kind", BAD)
def test_one_good_url_is_enough(store: Store, site: Site, kind: str) -> None:
    site.answers["/a"] = BAD[kind][0]
    site.answers["/b"] = ranges()
    assert store.get(resolved(f"{site.url}a", f"{site.url}b")).read_bytes() == DATA


def test_a_server_that_is_not_there(store: Store) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    with pytest.raises(InputError, match="can't be reached: Connection refused"):
        store.get(resolved(f"http://127.0.0.1:{port}/a"))
    assert names(store) == []


def test_what_failed_for_a_while_is_tried_again(store: Store, site: Site) -> None:
    site.answers["/a"] = in_turn(body(b"", status=503), body(b"", status=503), body(DATA))
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA


def test_what_failed_for_good_is_not_tried_again(store: Store, site: Site) -> None:
    with pytest.raises(InputError):
        store.get(resolved(f"{site.url}a"))
    assert site.asked == ["/a"]


# Going on with what is there


def test_a_download_that_broke_off_is_gone_on_with(store: Store, site: Site) -> None:
    site.answers["/a"] = in_turn(cut_off(100_000), ranges())
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA
    assert site.headers["Range"] == "bytes=100000-"


def test_a_server_that_sends_all_where_a_part_was_asked_for(store: Store, site: Site) -> None:
    site.answers["/a"] = in_turn(cut_off(100_000), body(DATA))
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA


def other_part(request: BaseHTTPRequestHandler) -> None:
    request.send_response(206)
    request.send_header("Content-Range", f"bytes 5-{len(DATA) - 1}/{len(DATA)}")
    request.send_header("Content-Length", str(len(DATA) - 5))
    request.end_headers()
    request.wfile.write(DATA[5:])


@pytest.mark.parametrize("second", [other_part, body(b"", status=416)], ids=["another part", "416"])
def test_a_part_that_is_not_to_be_had_is_started_over(
    store: Store, site: Site, second: Callable[[BaseHTTPRequestHandler], None]
) -> None:
    site.answers["/a"] = in_turn(cut_off(100_000), second, body(DATA))
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA


def test_wrong_bytes_from_one_server_do_not_spoil_another_one_s(store: Store, site: Site) -> None:
    site.answers["/a"] = cut_off(50_000, b"x" * len(DATA))
    site.answers["/b"] = ranges()
    assert store.get(resolved(f"{site.url}a", f"{site.url}b")).read_bytes() == DATA


def test_what_a_killed_process_loaded_is_gone_on_with(store: Store, site: Site) -> None:
    site.answers["/a"] = cut_off(70_000)
    with pytest.raises(InputError):
        store.get(resolved(f"{site.url}a"))
    (part,) = store.folder.iterdir()
    assert part.name.endswith(".part")
    site.answers["/a"] = ranges()
    assert store.get(resolved(f"{site.url}a")).read_bytes() == DATA
    assert site.headers["Range"] == "bytes=70000-"


@pytest.mark.parametrize("left", [DATA, DATA + b"x", b"x" * len(DATA)], ids=["whole", "too long", "wrong"])
def test_a_left_file_of_full_length_is_judged_by_its_digest(store: Store, site: Site, left: bytes) -> None:
    entry = resolved(f"{site.url}a")
    store.folder.mkdir(parents=True)
    (store.folder / f".{NAME}.{entry.variant.sha256[:16]}.part").write_bytes(left)
    site.answers["/a"] = body(DATA)
    assert store.get(entry).read_bytes() == DATA
    assert site.asked == ([] if left == DATA else ["/a"])


# Several at once


def _get(folder: Path, entry: Resolved) -> None:
    store = Store(folder, downloader=Downloader(timeout=5, rounds=3, pause=0.01))
    assert store.get(entry).read_bytes() == DATA


def test_processes_that_want_one_bundle_load_it_once(tmp_path: Path, site: Site) -> None:
    def slowly(request: BaseHTTPRequestHandler) -> None:
        time.sleep(0.1)
        ranges()(request)

    site.answers["/a"] = slowly
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=_get, args=(tmp_path, resolved(f"{site.url}a"))) for _ in range(6)]
    for process in running:
        process.start()
    for process in running:
        process.join()
        assert process.exitcode == 0
    assert site.asked == ["/a"]


def test_a_bundle_that_another_process_finished_just_now_is_not_loaded_again(
    store: Store, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = resolved(f"{site.url}a")
    site.answers["/a"] = ranges()
    really = Store.has
    looks = 0

    def late(self: Store, wanted: Any, *, replace: bool = False) -> bool:
        # Another process finishes it behind the first look, which has found nothing.
        nonlocal looks
        looks += 1
        if looks > 1:
            return really(self, wanted, replace=replace)
        found = really(self, wanted, replace=replace)
        self.folder.mkdir(parents=True)
        self.path(wanted.variant).write_bytes(DATA)
        return found

    monkeypatch.setattr(Store, "has", late)
    assert store.get(entry).read_bytes() == DATA
    assert site.asked == []
    assert names(store) == [NAME]


# The disk


def test_a_full_disk_is_said_and_leaves_nothing(
    store: Store, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.answers["/a"] = body(DATA)
    real = Downloader.bundle

    class Full:
        def __init__(self, part: Any) -> None:
            self._part = part

        def __getattr__(self, name: str) -> Any:
            return getattr(self._part, name)

        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        Downloader,
        "bundle",
        lambda self, variant, part, told: real(self, variant, cast("Any", Full(part)), told),
    )
    with pytest.raises(InputError, match="No space left on device") as caught:
        store.get(resolved(f"{site.url}a"))
    assert "Make room" in str(caught.value)
    assert names(store) == []


def test_a_real_limit_on_file_sizes_is_said_and_leaves_nothing(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(InputError, match="File too large"):
            store.get(resolved(f"{site.url}a"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(store) == []


def test_a_data_folder_that_can_t_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((UsageError, InputError)) as caught:
        Store(tmp_path / "file").get(resolved("http://127.0.0.1:1/a"))
    assert "Not a directory" in str(caught.value)


# Signatures


def test_a_signature_is_loaded_beside_the_bundle_and_checked_before_it_has_its_name(
    store: Store, site: Site
) -> None:
    site.answers["/a"] = body(DATA)
    site.answers["/a.sigstore.json"] = body(b"signed")
    seen = []

    def check(bundle: Path, signature: Path) -> None:
        seen.append((bundle.read_bytes() == DATA, signature.read_bytes(), (store.folder / NAME).exists()))

    path = store.get(resolved(f"{site.url}a"), check_signature=check)
    assert seen == [(True, b"signed", False)]
    assert names(store) == [NAME, f"{NAME}.sigstore.json"]
    store.get(
        resolved(f"{site.url}a"), check_signature=lambda bundle, _: seen.append((bundle == path, b"", True))
    )
    assert seen[1] == (True, b"", True)
    assert site.asked == ["/a", "/a.sigstore.json"]


def test_a_bundle_whose_signature_is_refused_gets_no_name(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    site.answers["/a.sigstore.json"] = body(b"forged")

    def refuse(_bundle: Path, _signature: Path) -> None:
        raise SignatureError("The signature is not by whom it should be.")

    with pytest.raises(SignatureError):
        store.get(resolved(f"{site.url}a"), check_signature=refuse)
    assert names(store) == []


def test_a_signature_that_is_not_to_be_had(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    with pytest.raises(InputError, match=r"sigstore\.json"):
        store.get(resolved(f"{site.url}a"), check_signature=lambda *_: None)
    assert NAME not in names(store)


def test_a_bundle_that_is_there_without_its_signature(store: Store) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / NAME).write_bytes(DATA)
    with pytest.raises(SignatureError, match="is missing"):
        store.get(resolved(), check_signature=lambda *_: None)


def test_a_signature_of_endless_size_is_refused(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    site.answers["/a.sigstore.json"] = body(b"x" * (2 << 20))
    with pytest.raises(InputError, match="more than 1048576 bytes"):
        store.get(resolved(f"{site.url}a"), check_signature=lambda *_: None)


# Proxies and certificates


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


def test_the_resolved_entry_is_not_changed(store: Store, site: Site) -> None:
    site.answers["/a"] = body(DATA)
    entry = resolved(f"{site.url}a")
    same = replace(entry)
    store.get(entry)
    assert entry == same
