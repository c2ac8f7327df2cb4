"""`capsule-build pins` and `cache`, and how progress is shown."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from capsule_build.cli import cache, pins
from capsule_build.cli.progress import Bars, Lines, build_reporter
from capsule_build.engine.protocol import BuildError
from capsule_build.fetch import Cache
from capsule_build.pins import Pin, PinSet, dump_pins, load_pins
from capsule_build.resources import tool_pins
from capsule_build.runtime.errors import CapsuleError, UsageError
from capsule_build.sandbox.javascript import guest
from tests.servers import isolate

if TYPE_CHECKING:
    from typer.testing import Result

DATA = b"the tool"
PIN = Pin(
    "tool", "any", "github-release", "me/tool", "1.0", "tool-1.0.tgz", hashlib.sha256(DATA).hexdigest(),
    len(DATA), "MIT", "v1",
)  # fmt: skip
RecipesOption = Annotated[Path, typer.Option("--recipes")]
COMPONENTS = """
[tool]
title = "Tool"
kind = "github-release"
package = "me/tool"
version = "1.0"
track = "v1"
license = "MIT"
[tool.targets]
any = "tool-{version}.tgz"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes with one pinned component, whose file is in the cache beside another file."""
    isolate(monkeypatch)
    monkeypatch.setenv("CAPSULE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    store = Cache()
    for data in (DATA, b"another"):
        with store.stage() as staging:
            (staging / "file").write_bytes(data)
            store.adopt(staging / "file", hashlib.sha256(data).hexdigest())
    (tmp_path / "components.toml").write_text(COMPONENTS)
    (tmp_path / "pins.lock.json").write_bytes(dump_pins(PinSet(1, (PIN,))))
    return tmp_path


def call(folder: Path, *arguments: str) -> Result:
    app = typer.Typer()

    @app.callback()
    def options(recipes: RecipesOption = folder) -> None:
        del recipes

    pins.register(app)
    cache.register(app)
    return CliRunner().invoke(app, arguments)


def test_pins_are_listed_for_people_and_for_machines(folder: Path) -> None:
    shown = call(folder, "pins", "list")
    assert shown.exit_code == 0
    assert "tool       any     1.0      github-release:me/tool  8 B" in shown.stdout
    document = json.loads(call(folder, "pins", "list", "--json", "tool").stdout)
    assert document["schema_version"] == "capsule-build.pins-list.v1"
    assert document["pins"][0]["sha256"] == PIN.sha256
    assert isinstance(call(folder, "pins", "list", "nothing").exception, UsageError)


def test_current_pins_are_left_alone(folder: Path) -> None:
    before = (folder / "pins.lock.json").read_bytes()
    shown = call(folder, "pins", "update", "--write")
    assert "All pins are current." in shown.stdout
    assert (folder / "pins.lock.json").read_bytes() == before


def test_an_update_shows_the_difference_and_writes_only_when_told(folder: Path) -> None:
    old = PinSet(1, (replace(PIN, component="gone"), replace(PIN, license="BSD")))
    (folder / "pins.lock.json").write_bytes(dump_pins(old))
    shown = call(folder, "pins", "update")
    assert "~ tool (any)\n    license: BSD -> MIT\n" in shown.stdout
    assert "- gone (any)" in shown.stdout
    assert "2 pins would change; --write writes them." in shown.stdout
    assert load_pins(folder / "pins.lock.json") == old
    assert call(folder, "pins", "update", "--write").exit_code == 0
    assert load_pins(folder / "pins.lock.json").pins == (PIN,)


def test_pins_are_exported_as_a_source_mirror(folder: Path) -> None:
    shown = call(folder, "pins", "export", str(folder / "mirror"))
    assert shown.exit_code == 0, shown.output
    assert (folder / "mirror" / "sha256" / PIN.sha256).read_bytes() == DATA
    assert (folder / "mirror" / "index.json").is_file()


def test_an_export_that_cant_be_written_is_refused_before_anything_is_fetched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the folder should have been looked at first")

    monkeypatch.setattr("capsule_build.cli.pins.fetch_all", refuse)
    (folder / "file").touch()
    for place in (folder / "file", "/proc/mirror"):
        shown = call(folder, "pins", "export", str(place))
        assert isinstance(shown.exception, UsageError)
        assert "can't be written" in str(shown.exception)


def test_the_cache_is_listed_with_what_names_its_files(folder: Path) -> None:
    shown = call(folder, "cache", "list").stdout
    assert "tool (any)" in shown
    assert "(none)" in shown
    assert "2 files, 15 B" in shown
    files = json.loads(call(folder, "cache", "list", "--json").stdout)["files"]
    assert {"sha256": PIN.sha256, "size": 8, "pins": ["tool (any)"]} in files


def test_the_cache_is_pruned_of_what_no_pin_names(folder: Path) -> None:
    assert "Would remove 1 file, 7 B." in call(folder, "cache", "prune", "--dry-run").stdout
    assert len(Cache().entries()) == 2
    assert "Removed 1 file, 7 B." in call(folder, "cache", "prune").stdout
    assert [entry.sha256 for entry in Cache().entries()] == [PIN.sha256]
    assert "Removed 1 file, 8 B." in call(folder, "cache", "prune", "--all").stdout
    assert Cache().entries() == []


def test_what_the_guest_is_made_of_is_named_and_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = replace(PIN, component="acorn", sha256=hashlib.sha256(b"another").hexdigest(), size=7)
    own = folder / "guest"
    own.mkdir()
    (own / guest.PINS).write_bytes(dump_pins(PinSet(1, (pin,))))
    monkeypatch.setattr(guest, "sources", lambda: str(own))
    shown = call(folder, "cache", "list").stdout
    assert "tool (any)" in shown
    assert "acorn (any) of JavaScript's guest" in shown
    assert "(none)" not in shown
    assert "Removed 0 files, 0 B." in call(folder, "cache", "prune").stdout
    assert len(Cache().entries()) == 2
    assert "Removed 2 files, 15 B." in call(folder, "cache", "prune", "--all").stdout


def test_what_the_checkouts_tools_download_is_named_and_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The linter of workflows takes its one from this file.
    shipped = tool_pins()
    assert shipped is not None
    assert [pin.component for pin in load_pins(shipped).pins] == ["actionlint"]
    pin = replace(PIN, component="linter", sha256=hashlib.sha256(b"another").hexdigest(), size=7)
    own = folder / "tools.json"
    own.write_bytes(dump_pins(PinSet(1, (pin,))))
    monkeypatch.setattr(cache, "tool_pins", lambda: own)
    assert "linter (any) of the checkout's tools" in call(folder, "cache", "list").stdout
    assert "Removed 0 files, 0 B." in call(folder, "cache", "prune").stdout
    # An installed package has no tools.
    monkeypatch.setattr(cache, "tool_pins", lambda: None)
    assert "Removed 1 file, 7 B." in call(folder, "cache", "prune").stdout


def terminal(*, width: int = 200) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("way", [Lines, Bars])
def test_progress_tells_what_happens(way: type[Lines | Bars]) -> None:
    console = terminal()
    reporter = way(console)
    hidden = replace(PIN, component="never-started")
    reporter.step("Inputs [all]")
    reporter.started(PIN)
    reporter.advanced(PIN, 4)
    reporter.advanced(hidden, 4)
    reporter.finished(PIN)
    reporter.note("mind [this]")
    reporter.log("STEP 1/2: COPY [a] b\n")
    reporter.log("STEP 2/2: RUN")
    reporter.packed(100)
    reporter.step("Smoke")
    for text in ("Inputs [all]", "tool (any)", "note: mind [this]", "Smoke"):
        assert text in written(console)


def told(*, verbose: bool, failing: CapsuleError | None) -> list[str]:
    """What a build's log looks like where it is no terminal."""
    console = Console(file=io.StringIO(), width=200)
    expected = pytest.raises(type(failing)) if failing else contextlib.nullcontext()
    with expected, build_reporter(console, verbose=verbose) as reporter:
        for line in ("Step 1/2 : COPY a b", "copied [a]", "[1/2] STEP 2/2: RUN", "ran"):
            reporter.log(line)
        if failing:
            raise failing
    return written(console).splitlines()


def test_a_log_has_the_engines_steps_and_all_of_it_when_a_build_fails_or_that_is_asked_for() -> None:
    steps = ["  Step 1/2 : COPY a b", "  [1/2] STEP 2/2: RUN"]
    whole = [steps[0], "  copied [a]", steps[1], "  ran"]
    failed = BuildError("it failed", step="2", log_tail=("ran",))
    assert told(verbose=False, failing=None) == steps
    assert told(verbose=True, failing=None) == whole
    assert told(verbose=True, failing=failed) == whole
    assert told(verbose=False, failing=failed) == [*steps, "The engine's whole log:", *whole]
    assert told(verbose=False, failing=CapsuleError("a smoke test failed")) == steps


def test_a_terminal_gets_bars_and_a_log_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    console = terminal()
    with build_reporter(console) as reporter:
        assert isinstance(reporter, Bars)
        reporter.started(PIN)
        reporter.finished(PIN)
    with build_reporter(Console(file=io.StringIO())) as reporter:
        assert isinstance(reporter, Lines)
    monkeypatch.setenv("CI", "true")
    with build_reporter(terminal()) as reporter:
        assert isinstance(reporter, Lines)
    monkeypatch.delenv("CI")
    monkeypatch.setenv("TERM", "dumb")
    with build_reporter(terminal()) as reporter:
        assert isinstance(reporter, Lines)
