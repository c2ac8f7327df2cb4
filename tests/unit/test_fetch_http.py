from __future__ import annotations

import base64
import threading
import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.fetch import http
from capsule_build.fetch.location import Location
from capsule_build.fetch.transfer import (
    CancelledError,
    NotThereError,
    StorageError,
    Transfer,
    UnreachableError,
    WrongFileError,
)
from capsule_build.runtime.errors import UsageError
from tests.servers import Site, body, in_turn, isolate, redirect, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

DATA = bytes(range(256)) * 4096


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    isolate(monkeypatch)


@pytest.fixture
def site() -> Iterator[Site]:
    with serve() as running:
        yield running


def get(site: Site, folder: Path, size: int | None = len(DATA)) -> bytes:
    http.download(site.url + "file", folder / "file", transfer=Transfer(folder), size=size)
    return (folder / "file").read_bytes()


@pytest.mark.parametrize("size", [len(DATA), None])
@pytest.mark.parametrize("announce", [None, -1])
def test_a_file_comes_whole(site: Site, tmp_path: Path, size: int | None, announce: int | None) -> None:
    site.answers["/file"] = body(DATA, announce=announce)
    assert get(site, tmp_path, size) == DATA
    assert site.asked == ["/file"]


def test_progress_is_told_up_to_the_last_byte(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = body(DATA)
    told: list[int] = []
    http.download(site.url + "file", tmp_path / "file", transfer=Transfer(tmp_path, told.append))
    assert told == sorted(told)
    assert told[-1] == len(DATA)


def test_a_server_that_breaks_off_is_asked_again_from_the_start(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = in_turn(body(DATA[:1000], announce=len(DATA)), body(DATA))
    assert get(site, tmp_path) == DATA
    assert site.asked == ["/file"] * 2


def test_a_short_file_of_unannounced_length_is_asked_for_again(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = in_turn(body(DATA[:1000], announce=-1), body(DATA, announce=-1))
    assert get(site, tmp_path) == DATA


def test_a_server_that_always_breaks_off_is_given_up(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = body(DATA[:1000], announce=len(DATA))
    with pytest.raises(UnreachableError, match=f"broke off after 1000 of {len(DATA)} bytes"):
        get(site, tmp_path)
    assert site.asked == ["/file"] * 4


def test_a_busy_server_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = in_turn(body(b"busy", status=500), body(b"busy", status=503), body(DATA))
    assert get(site, tmp_path) == DATA


@pytest.mark.parametrize("status", [400, 401, 403, 429])
def test_a_refusal_is_final(site: Site, tmp_path: Path, status: int) -> None:
    site.answers["/file"] = body(b"no", status=status)
    with pytest.raises(UnreachableError, match=f"answers {status}"):
        get(site, tmp_path)
    assert site.asked == ["/file"]


def test_a_file_that_is_not_there_is_an_error_of_its_own(site: Site, tmp_path: Path) -> None:
    with pytest.raises(NotThereError, match="404"):
        get(site, tmp_path)
    assert site.asked == ["/file"]


def test_an_announced_wrong_size_is_refused_before_the_body(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = body(DATA + b"x")
    with pytest.raises(WrongFileError, match=f"{len(DATA) + 1} bytes instead of {len(DATA)}"):
        get(site, tmp_path)
    assert not (tmp_path / "file").exists()
    assert site.asked == ["/file"]


def test_more_than_the_known_size_is_never_taken(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = body(DATA * 4, announce=-1)
    with pytest.raises(WrongFileError, match=f"more than {len(DATA)} bytes"):
        get(site, tmp_path)
    assert (tmp_path / "file").stat().st_size <= len(DATA)


def test_more_than_the_limit_is_never_taken(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_FILE_BYTES", 1000)
    site.answers["/file"] = body(DATA, announce=-1)
    with pytest.raises(WrongFileError, match="more than 1000 bytes"):
        get(site, tmp_path, None)


def test_a_redirect_is_followed_without_the_password(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = redirect("/elsewhere")
    site.answers["/elsewhere"] = body(DATA)
    url = site.url.replace("://", "://me:s3cret%21@") + "file"
    http.download(url, tmp_path / "file", transfer=Transfer(tmp_path), size=len(DATA))
    assert site.asked == ["/file", "/elsewhere"]
    assert "Authorization" not in site.headers


def test_a_password_is_sent_and_never_shown(site: Site, tmp_path: Path) -> None:
    url = site.url.replace("://", "://me:s3cret%21@") + "file"
    with pytest.raises(NotThereError) as caught:
        http.download(url, tmp_path / "file", transfer=Transfer(tmp_path))
    assert site.headers["Authorization"] == "Basic " + base64.b64encode(b"me:s3cret!").decode()
    assert "s3cret" not in str(caught.value)
    assert "***@127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/file", "file:///etc/passwd"])
def test_a_redirect_away_from_the_web_is_refused(site: Site, tmp_path: Path, target: str) -> None:
    site.answers["/file"] = redirect(target)
    with pytest.raises(UnreachableError):
        get(site, tmp_path)
    assert not (tmp_path / "file").exists()


def test_an_endless_redirect_ends(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = redirect("/file")
    with pytest.raises(UnreachableError):
        get(site, tmp_path)


def test_nobody_listening_is_said_with_what_to_check(site: Site, tmp_path: Path) -> None:
    with serve() as gone:
        pass
    with pytest.raises(UnreachableError, match="Connection refused") as caught:
        get(gone, tmp_path)
    assert "https_proxy" in str(caught.value)


def test_the_users_proxy_is_used(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", site.url)
    site.answers["http://mirror.invalid/file"] = body(DATA)
    http.download("http://mirror.invalid/file", tmp_path / "file", transfer=Transfer(tmp_path))
    assert (tmp_path / "file").read_bytes() == DATA


def test_a_full_disk_is_not_taken_for_a_broken_connection(site: Site, tmp_path: Path) -> None:
    site.answers["/file"] = body(DATA)
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left") as caught:
        http.download(site.url + "file", tmp_path / "full", transfer=Transfer(tmp_path))
    assert "cache prune" in str(caught.value)
    assert site.asked == ["/file"]


def test_a_transfer_that_is_called_off_ends(site: Site, tmp_path: Path) -> None:
    called_off = threading.Event()

    def slowly(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(1000):
            request.wfile.write(b"x" * 1000)
            time.sleep(0.01)

    site.answers["/file"] = slowly
    transfer = Transfer(tmp_path, lambda done: called_off.set() if done > 5000 else None, called_off)
    began = time.monotonic()
    with pytest.raises(CancelledError):
        http.download(site.url + "file", tmp_path / "file", transfer=transfer)
    assert time.monotonic() - began < 5


def test_a_wait_between_attempts_is_called_off_at_once(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "BACKOFF_SECONDS", (60.0,))
    site.answers["/file"] = body(b"", status=500)
    called_off = threading.Event()
    threading.Timer(0.1, called_off.set).start()
    with pytest.raises(CancelledError):
        http.download(site.url + "file", tmp_path / "f", transfer=Transfer(tmp_path, cancelled=called_off))


def test_certificates_that_can_not_be_read_are_named(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing.pem"))
    with pytest.raises(UnreachableError, match=r"missing\.pem"):
        get(site, tmp_path)


def test_a_folder_is_a_location_and_so_is_its_file_url(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "file").write_bytes(DATA)
    for text in (str(tmp_path / "a b"), (tmp_path / "a b").as_uri()):
        place = Location.parse(text, "X")
        place.fetch("file", tmp_path / "copy", transfer=Transfer(tmp_path), size=len(DATA))
        assert (tmp_path / "copy").read_bytes() == DATA
        with pytest.raises(NotThereError):
            place.fetch("other", tmp_path / "copy", transfer=Transfer(tmp_path))
        with pytest.raises(WrongFileError, match="more than 10 bytes"):
            place.fetch("file", tmp_path / "copy", transfer=Transfer(tmp_path), size=10)
        with pytest.raises(WrongFileError, match="instead of"):
            place.fetch("file", tmp_path / "copy", transfer=Transfer(tmp_path), size=len(DATA) + 1)
        with pytest.raises(UnreachableError):
            place.fetch(".", tmp_path / "copy", transfer=Transfer(tmp_path))


def test_a_url_is_a_location_with_its_names_quoted(site: Site, tmp_path: Path) -> None:
    site.answers["/base/a%2Bb/c~1"] = body(DATA)
    place = Location.parse(site.url + "base", "X")
    place.fetch("a+b/c~1", tmp_path / "copy", transfer=Transfer(tmp_path))
    assert (tmp_path / "copy").read_bytes() == DATA


def test_what_is_no_location_is_refused_by_the_variables_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="X names a folder that isn't there"):
        Location.parse(str(tmp_path / "missing"), "X")
    with pytest.raises(UsageError, match="neither a folder nor"):
        Location.parse("ftp://host/x", "X")
