"""The command `capsule` for runtime capsules: what it takes, prints, and exits with. No engine is asked."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from capsule_build.cli.capsule import app
from capsule_build.cli.capsule.targets import default_data_dir
from capsule_build.cli.stages import stages
from capsule_build.resources import registry_lock
from capsule_build.runtime.health import Check, examine
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.registry import load_registry
from capsule_build.runtime.store import Store
from tests.targets import TAG, Rerooted, host_libc, make_tmp, registry_of, remove_read_only, small, stored

from .cli.ran import Ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("CAPSULE_", "FORCE_COLOR"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def capsule(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*argv: object) -> Ran:
        code = app.run([str(word) for word in argv])
        return Ran(code, *capsys.readouterr())

    return run


@dataclass
class World:
    """A registry lock, a data folder with its bundle, and a folder that stands for this machine."""

    lock: Path
    data: Path
    bundle: Path
    root: Path
    platform: str

    @property
    def options(self) -> tuple[str | Path, ...]:
        return ("--lock", self.lock, "--data-dir", self.data)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    _, bundle = stored(tmp_path / "data", small(host_libc()).data())
    lock = tmp_path / "lock.json"
    lock.write_bytes(registry_of(bundle).to_bytes())
    root = make_tmp(tmp_path / "root")
    environment = Rerooted(root)
    monkeypatch.setattr("capsule_build.cli.capsule.targets.open_environment", lambda *_, **__: environment)
    (platform,) = load_registry(lock).capsules[TAG].variants
    yield World(lock, tmp_path / "data", bundle, root, str(platform))
    remove_read_only(root)


COMMANDS = {
    (): ("Capsules", "Tasks", "setup", "use", "seal", "why", "probe", "run", "doctor"),
    ("tags",): ("--lock", "--data-dir", "--json"),
    ("fetch",): ("TAG", "--platform", "--from", "--lock", "--data-dir", "--replace", "--json"),
    ("probe",): ("ENV", "docker:NAME", "--user", "--json"),
    ("install",): ("TAG", "ENV", "--lock", "--data-dir", "--replace", "--json"),
    ("use",): ("TAG", "ENV", "-- CMD", "--lock"),
    ("seal",): ("TAG", "ENV", "--dry-run", "--lock", "--json"),
    ("setup",): ("HARNESS.json", "ENV", "--lock", "--data-dir", "--json"),
    ("why",): ("PATH", "ENV", "--json"),
    ("verify",): ("TAG", "ENV", "--lock", "--data-dir", "--json"),
    ("uninstall",): ("TAG", "ENV", "--setups", "--lock", "--json"),
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_names_what_there_is(capsule: Callable[..., Ran], command: tuple[str, ...]) -> None:
    ran = capsule(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    for word in COMMANDS[command]:
        assert word in ran.out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("probe", "lxc:web"), 2, "'lxc:web' is not an environment"),
        (("probe", "docker:"), 2, "'docker:' is not an environment"),
        (("probe", "local", "--user", "nobody"), 2, "--user is for containers"),
        (("install", "docker.io/x:1", "local"), 2, "is an OCI reference"),
        (("install", "node24-v9", "local"), 2, "There is no capsule 'node24-v9'"),
        (("tags", "--lock", "/no/such/lock"), 2, "'/no/such/lock' can't be read"),
        (("fetch", "node24-v1", "--platform", "windows"), 2, "'windows' is not a platform"),
        (("fetch", "node24-v1", "--platform", "linux-aarch64-musl"), 2, "for linux-aarch64-musl"),
        (("use", "node24-v1", "local"), 2, "Missing argument"),
        (("setup", "/no/such/harness.json", "local"), 2, "'/no/such/harness.json' can't be read"),
        (("why", "relative", "local"), 2, "'relative' is not an absolute path"),
        (("nonsense",), 2, "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_one_message(
    capsule: Callable[..., Ran], argv: tuple[str, ...], code: int, message: str
) -> None:
    ran = capsule(*argv)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err


def test_tags_are_the_shipped_locks_without_an_option(capsule: Callable[..., Ran]) -> None:
    document = capsule("tags", "--json").json
    assert document["schema_version"] == "capsule.tags.v1"
    assert document["lock"] == str(registry_lock())
    listed = {(item["tag"], item["platform"]) for item in document["capsules"]}
    shipped = load_registry(registry_lock()).capsules
    assert listed == {(tag, str(name)) for tag, item in shipped.items() for name in item.variants}


def test_tags_say_what_is_here(
    world: World, capsule: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_REGISTRY_LOCK", str(world.lock))
    monkeypatch.setenv("CAPSULE_DATA_DIR", str(world.data))
    (item,) = capsule("tags", "--json").json["capsules"]
    assert (item["tag"], item["platform"], item["stored"]) == (TAG, world.platform, True)
    assert TAG in capsule("tags").out
    # An option goes before its variable.
    (item,) = capsule("tags", "--data-dir", world.root, "--json").json["capsules"]
    assert not item["stored"]


def test_the_data_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / "capsule-build"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / ".local/share/capsule-build"


def test_a_bundle_is_fetched_from_where_it_is(world: World, capsule: Callable[..., Ran]) -> None:
    document = capsule("fetch", TAG, *world.options, "--json").json
    assert (document["path"], document["platform"]) == (str(world.bundle), world.platform)
    assert capsule("fetch", TAG, "--platform", world.platform, *world.options).out == f"{world.bundle}\n"
    world.bundle.write_bytes(b"damaged")
    ran = capsule("fetch", TAG, *world.options)
    assert (ran.code, ran.out) == (3, "")
    world.bundle.unlink()
    ran = capsule("fetch", TAG, *world.options)
    assert (ran.code, f"capsule fetch {TAG} --from dist/{world.bundle.name}\n" in ran.err) == (3, True)


def test_a_built_bundle_is_put_into_the_store(
    world: World, capsule: Callable[..., Ran], tmp_path: Path
) -> None:
    built = world.bundle.rename(tmp_path / world.bundle.name)
    # The file says for which platform it is: the hint's command needs no other option.
    other = small({"glibc": "musl", "musl": "glibc"}[host_libc()])
    for_others = tmp_path / "others.tar.gz"
    for_others.write_bytes(other.data())
    world.lock.write_bytes(registry_of(built, for_others).to_bytes())
    options = ("--lock", world.lock, "--data-dir", tmp_path / "new" / "data")
    for file in (built, for_others):
        ran = capsule("fetch", TAG, "--from", file, *options)
        assert (ran.code, ran.out) == (0, f"{tmp_path}/new/data/capsules/{file.name}\n")
    for file, code, said in (
        (world.lock, 3, "is not the bundle of"),
        (tmp_path / "absent", 2, "can't be read"),
    ):
        for data in (tmp_path / "y", tmp_path / "new/data"):
            ran = capsule("fetch", TAG, "--from", file, "--lock", world.lock, "--data-dir", data)
            assert (ran.code, ran.out, said in ran.err) == (code, "", True)


def test_a_capsule_is_installed_verified_and_removed(world: World, capsule: Callable[..., Ran]) -> None:
    probed = capsule("probe", "local", "--json").json
    assert (probed["platform"], probed["capsules"], probed["problem"]) == (world.platform, [], None)
    missing = capsule("seal", TAG, "local", "--lock", world.lock)
    assert (missing.code, f"capsule install {TAG}" in missing.err) == (7, True)

    ran = capsule("install", TAG, "local", *world.options, "--json")
    assert "Installing the capsule ..." in ran.err
    assert (ran.json["is_new"], ran.json["platform"]) == (True, world.platform)
    again = capsule("install", TAG, "local", *world.options)
    assert again.out == f"{ran.json['root']}  was there already\n"
    assert again.err == ""
    assert capsule("probe", "local", "--json").json["capsules"][0]["sha256"] == ran.json["sha256"]

    assert capsule("verify", TAG, "local", *world.options, "--json").json["ok"]
    changed = world.root / ran.json["root"].lstrip("/") / "share/text"
    changed.chmod(0o644)
    changed.write_text("other")
    told = capsule("verify", TAG, "local", *world.options, "--json")
    assert (told.code, list(told.json["differences"])) == (1, ["share/text"])
    in_words = capsule("verify", TAG, "local", *world.options)
    assert (in_words.code, in_words.out, "share/text" in in_words.err) == (1, "", True)

    removed = capsule("uninstall", TAG, "local", "--lock", world.lock, "--json").json
    assert removed == {
        "schema_version": "capsule.uninstall.v1",
        "environment": "local",
        "tag": TAG,
        "removed": True,
    }
    assert capsule("uninstall", TAG, "local", "--lock", world.lock).out == f"{TAG}  was not there\n"


def test_a_target_that_cant_take_a_capsule_is_7(world: World, capsule: Callable[..., Ran]) -> None:
    (world.root / "tmp/agentcompass-capsules").symlink_to("/")
    ran = capsule("probe", "local")
    assert ran.code == 7
    assert world.platform in ran.out
    assert "a symlink" in ran.err
    document = capsule("probe", "local", "--json")
    assert (document.code, "a symlink" in document.json["problem"]["message"]) == (7, True)
    assert capsule("install", TAG, "local", *world.options).code == 7


def test_a_harness_that_is_there_is_found(tmp_path: Path, capsule: Callable[..., Ran]) -> None:
    harness = tmp_path / "harness.json"
    spec = {"install_strategy": "preinstalled", "entrypoint": "sh", "check_command": ["sh", "-c", "exit 0"]}
    harness.write_text(json.dumps(spec))
    ran = capsule("setup", harness, "local", "--json")
    assert ran.code == 0, ran.err
    document = ran.json
    assert document["schema_version"] == "capsule.setup.v1"
    assert document["path"].endswith("/sh")
    assert (document["sha256"], document["seal"], document["is_new"]) == (None, None, False)
    assert isinstance(document["notes"], list)
    assert capsule("setup", harness, "local").out == f"{document['path']}\n"
    harness.write_text(json.dumps({**spec, "entrypoint": "no-such-harness"}))
    assert capsule("setup", harness, "local").code != 0


def test_why_tells_people_and_machines(tmp_path: Path, capsule: Callable[..., Ran]) -> None:
    script = tmp_path / "scr[i]pt"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ran = capsule("why", script, "local")
    assert ran.code == 1
    assert f"{script} can't start in local:\n  - The first line of" in ran.out
    assert "Next: Install it with a capsule" in ran.out
    document = capsule("why", script, "local", "--json").json
    assert (document["schema_version"], document["starts"]) == ("capsule.why.v1", False)
    assert document["problems"][0]["kind"] == "interpreter-missing"
    assert document["sealing"]["state"] == "outside"
    fine = capsule("why", "/bin/sh", "local")
    assert (fine.code, fine.err) == (0, "")
    assert fine.out.startswith("Nothing was found that keeps /bin/sh from starting in local.\n")


ATTACH = "import sys; from capsule_build.runtime.process import attach; sys.exit(attach(sys.argv[1:]))"


def attached(*argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", ATTACH, *argv]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=30, check=False)


def test_an_attached_program_has_this_ones_streams_and_status() -> None:
    ran = attached("/bin/sh", "-c", "cat; echo err >&2; exit 7", stdin=b"in\0")
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"in\0", b"err\n")
    assert attached("/bin/sh", "-c", "kill -9 $$").returncode == 137


def test_an_attached_program_decides_about_signals() -> None:
    script = "trap 'echo got; exit 5' TERM; echo ready; for i in $(seq 400); do sleep 0.05; done"
    command = [sys.executable, "-c", ATTACH, "/bin/sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == b"got\n"
        assert process.wait(30) == 5


def test_a_platform_that_the_lock_lacks_is_wrong_usage(world: World, capsule: Callable[..., Ran]) -> None:
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[Platform.parse(world.platform).architecture]
    ran = capsule("fetch", TAG, "--platform", f"linux-{other}-glibc", *world.options)
    assert (ran.code, world.platform in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["install", "fetch", "setup"])
def test_a_tag_that_only_a_recipe_has_is_told_how_to_make(
    world: World, capsule: Callable[..., Ran], tmp_path: Path, command: str
) -> None:
    harness = tmp_path / "harness.json"
    spec = {"install_strategy": "install", "entrypoint": "x", "check_command": ["x"], "install_command": "x"}
    for tag, hint in (
        ("python312-v1", "'capsule-build python3.12' builds it, and 'capsule-build lock --lock FILE'"),
        ("nothing-v1", f"Tags: {TAG}"),
    ):
        harness.write_text(json.dumps({**spec, "setup_capsule_tag": tag}))
        asked = {"install": (tag, "local"), "fetch": (tag,), "setup": (harness, "local")}[command]
        ran = capsule(command, *asked, *world.options)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("There is no capsule") == 1
        assert hint in " ".join(ran.err.split())


def test_doctor_looks_at_what_capsules_need(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    (tools / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    found = {check.name: check for check in examine(world.lock, Store(world.data))}
    assert {name: check.status for name, check in found.items()} == {
        "docker": "warn",
        "podman": "warn",
        "registry lock": "ok",
        "store": "ok",
        f"{TAG} for {world.platform}": "ok",
    }
    assert "Cannot connect" in found["docker"].found
    assert "isn't installed" in found["podman"].found
    assert TAG in found["registry lock"].found
    (tools / "docker").write_text("#!/bin/sh\necho 20.10.24\n")
    found = {check.name: check for check in examine(tmp_path / "none", Store(tmp_path / "new/data"))}
    assert (found["docker"].status, "Docker 20.10.24" in found["docker"].found) == ("ok", True)
    assert (found["registry lock"].status, found["store"].status) == ("fail", "ok")
    (store,) = (check for check in examine(world.lock, Store(world.lock / "data")) if check.name == "store")
    assert (store.status, "can't be written to" in store.found) == ("warn", True)


def test_doctor_says_of_each_bundle_whether_it_can_be_had(world: World) -> None:
    def told(data: Path) -> Check:
        return {check.name: check for check in examine(world.lock, Store(data))}[
            f"{TAG} for {world.platform}"
        ]

    assert told(world.data).found == "Its bundle is in the store."
    absent = told(world.root)
    assert absent.status == "warn"
    assert absent.found == "Its bundle is not in the store, and the registry lock has no URL for it."
    assert f"capsule fetch {TAG} --from dist/{world.bundle.name}" in str(absent.advice)
    bundle = world.bundle.read_bytes()
    world.bundle.write_bytes(b"damaged")
    damaged = told(world.data)
    assert (damaged.status, str(world.bundle) in damaged.found) == ("fail", True)
    world.bundle.write_bytes(bundle)
    world.lock.write_bytes(registry_of(world.bundle, urls=("http://127.0.0.1/a",)).to_bytes())
    assert (told(world.root).status, "can be downloaded" in told(world.root).found) == ("ok", True)


def test_stages_are_lines_in_a_log_and_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    seen = {}
    for terminal in (False, True):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None)
        with stages(console) as progress:
            for done in (1, 500, 1000):
                progress("download", done, 1000)
            progress("run", 0, 0)
            progress("[odd]", 0, 0)
        assert isinstance(console.file, io.StringIO)
        seen[terminal] = console.file.getvalue()
    assert seen[False] == "Downloading the capsule ...\nRunning the install command ...\n[odd] ...\n"
    assert "[odd]" in seen[True]
    assert "\x1b" in seen[True]


def test_a_stage_that_goes_on_for_long_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule_build.cli.stages._AGAIN_SECONDS", 0.05)
    shown = io.StringIO()
    with stages(Console(file=shown, width=100)) as progress:
        progress("run", 0, 0)
        deadline = time.monotonic() + 30
        while shown.getvalue().count("\n") < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    first, *again = shown.getvalue().splitlines()
    assert first == "Running the install command ..."
    assert all(re.fullmatch(r"Running the install command: \d+ s", line) for line in again)
    assert len(again) >= 2
