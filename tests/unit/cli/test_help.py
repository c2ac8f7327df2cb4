"""What `--help` and `--version` say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build import __version__

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests import fakes


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


def test_a_recipe_has_just_its_own_options(world: fakes.World, cli: Callable[..., Ran]) -> None:
    text = cli("tiny", "--help").out
    assert "--tool-version" in text
    assert "--node-version" not in text
    assert_one_message(cli("tiny", "--node-version", "24.1.0"), 2, "No such option")
    assert_one_message(cli("plan", "tiny", "--tool-version", "2.0.0"), 2, "--tool-version '2.0.0' is not")
