"""Downloads into the store, from servers that misbehave, by several processes, and to a disk that is full."""

from __future__ import annotations

import errno
import multiprocessing
import resource
import signal
import socket
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

from capsule_build.runtime import DigestError, InputError, Resolved, Store, UsageError
from capsule_build.runtime.download import Downloader
from tests.downloads import DATA, NAME, cut_off, names, ranges, resolved, site, stalling, store
from tests.servers import Site, body, in_turn, redirect

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

pytestmark = pytest.mark.slow

__all__ = ["site", "store"]

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
