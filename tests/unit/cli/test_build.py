"""Building one capsule, and all of them: the engine that is used, what is said, what a failure leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.build import build
from capsule_build.fetch import VanishedError

from .ran import NAME, Ran, assert_one_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests import fakes


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
