"""`lock`: made, checked, and bundles revoked in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.build import build

from .ran import Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests import fakes


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


def test_a_lock_that_is_no_file_is_refused(world: fakes.World, cli: Callable[..., Ran]) -> None:
    assert_one_message(cli("lock", "--dist", world.dist, "--lock", "/dev/full"), 2, "is not a file")
