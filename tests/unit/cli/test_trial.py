"""`test`: a bundle tried in an image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from capsule_build.build import build

from .ran import NAME, Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests import fakes


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
