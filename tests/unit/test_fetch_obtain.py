from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.components import Component
from capsule_build.fetch import Cache, Silence, VanishedError, WrongFileError, debian, fetch_all
from capsule_build.fetch.mirror import export
from capsule_build.fetch.parallel import run_all
from capsule_build.fetch.transfer import CancelledError, UnreachableError
from capsule_build.fetch.update import changes, named, update, write_pins
from capsule_build.pins import Pin, PinSet, load_pins
from capsule_build.runtime.errors import InputError, UsageError
from tests.servers import Site, body, isolate, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).parents[2]
DEBIAN = REPOSITORY / "tests/data/debian"
HELLO = Component("hello", "Hello", "debian", "hello", "GPL-3.0-or-later", "trixie", {"x86_64": "amd64"})
TOOL = Component(
    "tool", "Tool", "github-release", "me/tool", "MIT", "v1", {"any": "tool-{version}+{tag}.tgz"}, "1.0"
)
COMPONENTS = {"hello": HELLO, "tool": TOOL}
DATA = b"a released tool"
needs_gpgv = pytest.mark.skipif(shutil.which("gpgv") is None, reason="gpgv is not installed")


def tool_pin(data: bytes = DATA, component: str = "tool", size: int | None = len(DATA)) -> Pin:
    digest = hashlib.sha256(data).hexdigest()
    return Pin(
        component, "any", "github-release", "me/tool", "1.0", "tool-1.0+v1.tgz", digest, size, "MIT", "v1"
    )


class Told(Silence):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.downloads: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, pin: Pin) -> None:
        self.downloads.append(pin.label)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    isolate(monkeypatch)
    monkeypatch.setattr(debian, "_indexes", {})
    with serve() as running:
        monkeypatch.setattr("capsule_build.fetch.github.ORIGIN", running.url.rstrip("/"))
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


RELEASE = "/me/tool/releases/download/v1/tool-1.0%2Bv1.tgz"


def test_an_input_is_downloaded_once_and_then_taken_from_the_cache(site: Site, cache: Cache) -> None:
    site.answers[RELEASE] = body(DATA)
    pin, told = tool_pin(), Told()
    for _ in range(2):
        got = fetch_all([pin], cache=cache, components=COMPONENTS, progress=told)[pin]
        assert got.path.read_bytes() == DATA
        assert got.taken == pin
        assert not got.overridden
    assert site.asked == [RELEASE]
    assert told.downloads == ["tool (any)"]


def test_two_pins_of_one_file_are_one_download(site: Site, cache: Cache) -> None:
    site.answers[RELEASE] = body(DATA)
    pins = [tool_pin(), tool_pin(component="tool-library")]
    got = fetch_all(pins, cache=cache, components=COMPONENTS)
    assert site.asked == [RELEASE]
    assert [got[pin].taken for pin in pins] == pins


def test_a_poisoned_cache_is_said_and_the_file_fetched_again(site: Site, cache: Cache) -> None:
    site.answers[RELEASE] = body(DATA)
    pin, told = tool_pin(), Told()
    path = fetch_all([pin], cache=cache, components=COMPONENTS)[pin].path
    path.chmod(0o644)
    path.write_bytes(b"A RELEASED TOOL")
    assert fetch_all([pin], cache=cache, components=COMPONENTS, progress=told)[pin].path.read_bytes() == DATA
    assert len(told.notes) == 1
    assert "removed and fetched again" in told.notes[0]


@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_wrong_digest_is_an_error_and_leaves_nothing(site: Site, cache: Cache, size: int | None) -> None:
    site.answers[RELEASE] = body(DATA.upper())
    pin = tool_pin(size=size)
    with pytest.raises(WrongFileError, match=r"tool \(any\), .* isn't the pinned file") as caught:
        fetch_all([pin], cache=cache, components=COMPONENTS)
    assert pin.sha256 in str(caught.value)
    assert caught.value.exit_code == 3
    assert cache.entries() == []
    assert list((cache.root / "staging").iterdir()) == []


def test_an_unreachable_release_names_the_ways_out(site: Site, cache: Cache) -> None:
    site.answers[RELEASE] = body(b"", status=502)
    with pytest.raises(UnreachableError) as caught:
        fetch_all([tool_pin()], cache=cache, components=COMPONENTS)
    assert "--source tool=PATH" in str(caught.value)
    assert "CAPSULE_SOURCE_MIRROR" in str(caught.value)


def test_a_release_that_is_gone_names_the_ways_out(site: Site, cache: Cache) -> None:
    with pytest.raises(VanishedError, match="is gone") as caught:
        fetch_all([tool_pin()], cache=cache, components=COMPONENTS, newer=True)
    assert "--source tool=PATH" in str(caught.value)
    assert "CAPSULE_SOURCE_MIRROR" in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "url"])
def test_the_source_mirror_is_asked_first(
    site: Site, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pin = tool_pin()
    site.answers[f"/mirror/sha256/{pin.sha256}"] = body(DATA)
    (tmp_path / "mirror" / "sha256").mkdir(parents=True)
    (tmp_path / "mirror" / "sha256" / pin.sha256).write_bytes(DATA)
    mirror = str(tmp_path / "mirror") if kind == "folder" else site.url + "mirror"
    monkeypatch.setenv("CAPSULE_SOURCE_MIRROR", mirror)
    assert fetch_all([pin], cache=cache, components=COMPONENTS)[pin].path.read_bytes() == DATA
    assert RELEASE not in site.asked


def test_what_the_source_mirror_lacks_comes_from_the_origin_without_a_word(
    site: Site, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_SOURCE_MIRROR", site.url + "mirror")
    site.answers[RELEASE] = body(DATA)
    told = Told()
    fetch_all([tool_pin()], cache=cache, components=COMPONENTS, progress=told)
    assert told.notes == []


@pytest.mark.parametrize("wrong", [DATA.upper(), DATA + b"x", DATA[:-1]])
def test_a_wrong_file_in_the_source_mirror_is_said_and_the_origin_asked(
    site: Site, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bytes
) -> None:
    pin, told = tool_pin(), Told()
    (tmp_path / "mirror" / "sha256").mkdir(parents=True)
    (tmp_path / "mirror" / "sha256" / pin.sha256).write_bytes(wrong)
    monkeypatch.setenv("CAPSULE_SOURCE_MIRROR", str(tmp_path / "mirror"))
    site.answers[RELEASE] = body(DATA)
    got = fetch_all([pin], cache=cache, components=COMPONENTS, progress=told)
    assert got[pin].path.read_bytes() == DATA
    assert len(told.notes) == 1
    assert "another file" in told.notes[0]


def test_a_source_mirror_that_is_down_is_said_and_the_origin_asked(
    site: Site, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as gone:
        monkeypatch.setenv("CAPSULE_SOURCE_MIRROR", gone.url)
    site.answers[RELEASE] = body(DATA)
    told = Told()
    fetch_all([tool_pin()], cache=cache, components=COMPONENTS, progress=told)
    assert len(told.notes) == 1
    assert "can't be asked" in told.notes[0]


def test_a_source_mirror_that_is_no_folder_is_wrong_usage(
    site: Site, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_SOURCE_MIRROR", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="CAPSULE_SOURCE_MIRROR names a folder that isn't there"):
        fetch_all([tool_pin()], cache=cache, components=COMPONENTS)


def test_what_is_exported_is_a_source_mirror(
    site: Site, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.answers[RELEASE] = body(DATA)
    pin = tool_pin()
    folder = tmp_path / "new" / "mirror"
    for _ in range(2):
        got = fetch_all([pin], cache=cache, components=COMPONENTS)
        assert export([(pin, got[pin].path)], folder) == len(DATA)
    assert '"tool-1.0+v1.tgz"' in (folder / "index.json").read_text()
    site.answers.clear()
    monkeypatch.setenv("CAPSULE_SOURCE_MIRROR", str(folder))
    fresh = fetch_all([pin], cache=Cache(tmp_path / "fresh"), components=COMPONENTS)
    assert fresh[pin].path.read_bytes() == DATA


def test_an_export_mends_a_damaged_file_and_adds_to_its_index(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(DATA)
    (tmp_path / "two").write_bytes(b"two")
    export([(tool_pin(), tmp_path / "one")], tmp_path / "mirror")
    damaged = tmp_path / "mirror" / "sha256" / tool_pin().sha256
    damaged.write_bytes(b"")
    export([(tool_pin(), tmp_path / "one"), (tool_pin(b"two"), tmp_path / "two")], tmp_path / "mirror")
    assert damaged.read_bytes() == DATA
    assert (tmp_path / "mirror" / "index.json").read_text().count('"file"') == 2


def test_an_export_into_a_file_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't be written"):
        export([], tmp_path / "file")


@pytest.fixture
def debian_mirror(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "debian"
    shutil.copytree(DEBIAN / "mirror", copy)
    monkeypatch.setenv("CAPSULE_DEBIAN_MIRROR", str(copy))
    monkeypatch.setenv("CAPSULE_DEBIAN_KEYRING", str(DEBIAN / "archive.gpg"))
    return copy


OLD = Pin(
    "hello", "x86_64", "debian", "hello", "2.9-7", "hello_2.9-7_amd64.deb", "9" * 64, 10, "GPL-3.0-or-later",
    "pool/main/h/hello/hello_2.9-7_amd64.deb",
)  # fmt: skip


def test_a_pin_that_vanished_from_the_mirror_names_the_three_ways_out(
    debian_mirror: Path, cache: Cache
) -> None:
    with pytest.raises(VanishedError, match=r"hello \(x86_64\), debian:hello==2.9-7, is gone") as caught:
        fetch_all([OLD], cache=cache, components=COMPONENTS)
    for way in ("--newer-pins", "pins update --write hello", "CAPSULE_SOURCE_MIRROR"):
        assert way in str(caught.value)
    assert caught.value.exit_code == 3


@needs_gpgv
def test_the_current_version_is_taken_where_that_is_allowed_and_said(
    debian_mirror: Path, cache: Cache
) -> None:
    told = Told()
    got = fetch_all([OLD], cache=cache, components=COMPONENTS, progress=told, newer=True)[OLD]
    assert got.overridden
    assert (got.asked, got.taken.version) == (OLD, "2.10-3")
    assert got.path.read_bytes() == b"hello 2.10-3"
    assert got.path.name == got.taken.sha256
    assert len(told.notes) == 1
    assert "2.9-7 is gone from the mirror; 2.10-3" in told.notes[0]


@needs_gpgv
def test_an_update_finds_new_pins_and_what_differs(debian_mirror: Path, cache: Cache) -> None:
    stray = replace(OLD, component="stray")
    old = PinSet(1, (OLD, stray, tool_pin()))
    new = update(COMPONENTS, old, (), cache=cache)
    assert [pin.version for pin in new.pins] == ["2.10-3", "1.0"]
    assert new.epoch == 1
    found = changes(old, new)
    assert [change.label for change in found] == ["hello (x86_64)", "stray (x86_64)"]
    assert found[1].new is None
    assert not found[0].suspicious
    assert update(COMPONENTS, new, (), cache=cache) == new


@needs_gpgv
def test_an_update_of_one_component_leaves_the_others(debian_mirror: Path, cache: Cache) -> None:
    stray = replace(OLD, component="stray")
    new = update(COMPONENTS, PinSet(1, (stray,)), ["hello"], cache=cache)
    assert [pin.component for pin in new.pins] == ["hello", "stray"]
    with pytest.raises(UsageError, match="no component named nothing"):
        update(COMPONENTS, new, ["nothing"], cache=cache)


def test_other_bytes_under_the_same_name_are_suspicious() -> None:
    before, after = PinSet(1, (tool_pin(),)), PinSet(1, (tool_pin(b"other"),))
    assert [change.suspicious for change in changes(before, after)] == [True]
    assert changes(before, before) == []


def test_pins_are_chosen_by_name_and_written_whole(tmp_path: Path) -> None:
    pinset = PinSet(1, (OLD, tool_pin()))
    assert named(pinset, ["tool"]) == (tool_pin(),)
    assert named(pinset, []) == pinset.pins
    with pytest.raises(UsageError, match="nothing"):
        named(pinset, ["nothing"])
    write_pins(tmp_path / "pins.lock.json", pinset)
    assert load_pins(tmp_path / "pins.lock.json") == pinset
    with pytest.raises(UsageError, match="can't be written"):
        write_pins(tmp_path / "missing" / "pins.lock.json", pinset)


def test_jobs_run_at_once_and_their_results_keep_their_order() -> None:
    together = threading.Barrier(4, timeout=5)

    def job(number: int) -> Callable[[], int]:
        return lambda: number if number >= 4 else together.wait() * 0 + number

    assert run_all([job(number) for number in range(20)], threading.Event()) == list(range(20))
    assert run_all([], threading.Event()) == []


def test_the_first_failure_ends_all_and_is_the_one_reported() -> None:
    cancelled = threading.Event()
    ran: list[int] = []

    def waits() -> None:
        if cancelled.wait(10):
            raise CancelledError

    def fails() -> None:
        raise InputError("first")

    def counts() -> None:
        ran.append(1)

    began = time.monotonic()
    with pytest.raises(InputError, match="first"):
        run_all([waits, waits, waits, fails, *[counts] * 50], cancelled)
    assert time.monotonic() - began < 5
    assert cancelled.is_set()


def test_an_interrupt_ends_a_fetch_promptly_and_leaves_nothing_half_made(site: Site, tmp_path: Path) -> None:
    waiting = threading.Event()

    def drip(request: object) -> None:
        stream = request.wfile  # type: ignore[attr-defined]  # the handler of http.server
        stream.write(b"HTTP/1.0 200 OK\r\n\r\nx")
        stream.flush()
        waiting.set()
        for _ in range(200):
            time.sleep(0.05)
            stream.write(b"x")

    pin = tool_pin(size=None)
    site.answers[f"/sha256/{pin.sha256}"] = drip
    program = (
        "import sys; from pathlib import Path\n"
        "from capsule_build.fetch import Cache, fetch_all; from capsule_build.pins import Pin\n"
        f"fetch_all([{pin!r}], cache=Cache(Path(sys.argv[1])), components={{}})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "cache")],
        cwd=REPOSITORY,
        env={**os.environ, "CAPSULE_SOURCE_MIRROR": site.url},
        stderr=subprocess.PIPE,
    ) as child:
        assert waiting.wait(20)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=20)
        assert time.monotonic() - began < 5
    assert said.rstrip().endswith(b"KeyboardInterrupt")
    assert Cache(tmp_path / "cache").entries() == []
    assert list((tmp_path / "cache" / "staging").iterdir()) == []


@pytest.mark.slow
def test_two_processes_that_fetch_at_once_are_both_right(site: Site, tmp_path: Path) -> None:
    pins = [tool_pin(f"input {number}".encode(), f"tool-{number}", None) for number in range(8)]
    for number, pin in enumerate(pins):
        site.answers[f"/sha256/{pin.sha256}"] = body(f"input {number}".encode())
    program = (
        "import sys; from pathlib import Path\n"
        "from capsule_build.fetch import Cache, fetch_all; from capsule_build.pins import Pin\n"
        f"print(len(fetch_all({pins!r}, cache=Cache(Path(sys.argv[1])), components={{}})))\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "cache")],
            cwd=REPOSITORY,
            env={**os.environ, "CAPSULE_SOURCE_MIRROR": site.url},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert [child.communicate(timeout=30)[0] for child in children] == ["8\n"] * 3
    cache = Cache(tmp_path / "cache")
    assert all(cache.get(pin.sha256, None) for pin in pins)
    assert list((tmp_path / "cache" / "staging").iterdir()) == []
