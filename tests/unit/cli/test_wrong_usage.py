"""What is typed wrong, or isn't there, is one message and the right exit code, before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests import fakes


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
        (("node24", "--epoch", "yesterday"), "--epoch 'yesterday' is not a number of seconds."),
        (("node24", "--epoch", "1.5"), "--epoch '1.5' is not a number of seconds."),
        (("plan", "node24", "--epoch", ""), "--epoch '' is not a number of seconds."),
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


def test_an_engine_without_a_name_is_refused(world: fakes.World, cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("tiny", "--container-cli", ""), 2, "is not an engine")


def test_an_epoch_that_no_tar_can_name_is_refused_before_any_work(
    world: fakes.World, cli: Callable[..., Ran]
) -> None:
    assert_one_message(cli("tiny", "--epoch", "8589934592"), 2, "8589934591")


def test_malformed_definitions_are_5(world: fakes.World, cli: Callable[..., Ran]) -> None:
    (world.recipes / "pins.lock.json").write_text("{}")
    assert_one_message(cli("plan", "tiny"), 5, "pins.lock.json")
    (world.recipes / "tiny.toml").write_text("id = 3")
    assert_one_message(cli("plan", "tiny"), 5, "tiny.toml")


def test_a_file_that_is_no_bundle_is_5(tmp_path: Path, cli: Callable[..., Ran]) -> None:
    (tmp_path / "x.tar.gz").write_bytes(b"no bundle")
    for command in ("check", "test"):
        assert_one_message(cli(command, tmp_path / "x.tar.gz"), 5, "x.tar.gz")
