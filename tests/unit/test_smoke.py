"""Every tool of a bundle is run where it will live, and must say what it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from capsule_build.build import build
from capsule_build.engine.protocol import LABEL, ContainerError, ContainerTimeoutError, Outcome
from capsule_build.recipes import load_recipe
from capsule_build.runtime.errors import CapsuleError, ContractError, InputError
from capsule_build.smoke import ToolResult, bare_image, require_passed, run_smoke
from tests import fakes, tiny_recipe
from tests.bundles import small_bundle

if TYPE_CHECKING:
    from pathlib import Path

ROOT = "/tmp/agentcompass-capsules/tiny-1.2.3-linux-x86_64-glibc"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The tiny bundle, built once."""
    with pytest.MonkeyPatch.context() as patch:
        fakes.detach(patch)
        world = fakes.World(tmp_path_factory.mktemp("built"))
        return build(world.plan(), world.shop, world.report).plan.output.read_bytes()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: bytes) -> fakes.World:
    """A world in which the tiny bundle has been built, by an engine that isn't there any more."""
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    made = fakes.World(tmp_path)
    made.plan().output.write_bytes(bundle)
    return made


def smoke(world: fakes.World) -> tuple[ToolResult, ...]:
    recipe = load_recipe(world.recipes / "tiny.toml")
    return run_smoke(world.engine, "an-image", world.plan().output, recipe)


def test_all_tools_and_the_launcher_are_run(world: fakes.World) -> None:
    results = smoke(world)
    assert [item.tool for item in results] == ["tool", "seal-tree", "capsule-exec"]
    assert all(item.passed for item in results)
    assert results[0].expected == "tool 1.2.3 with inner 7.8.9"
    assert world.engine.containers == {}


def test_the_container_is_the_users_image_without_a_network(world: fakes.World) -> None:
    smoke(world)
    (spec,) = world.engine.specs
    assert (spec.image, spec.network, spec.binds, dict(spec.env)) == ("an-image", "none", (), {})
    assert spec.argv[:2] == (f"{ROOT}/libexec/bash", "-c")


def test_programs_are_named_absolutely_and_their_arguments_quoted(world: fakes.World) -> None:
    smoke(world)
    script = world.engine.specs[0].argv[2]
    assert f"""{ROOT}/bin/tool --version 'with blanks and '"'"'quotes'"'"'' 2>&1""" in script
    assert f"{ROOT}/bin/capsule-exec --version 2>&1" in script


def test_the_bundle_is_unpacked_at_its_install_root(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, bytes] = {}
    start = fakes.FakeEngine.start

    def look(engine: fakes.FakeEngine, container: str, timeout: float) -> Outcome:
        seen.update(engine.containers[container])
        return start(engine, container, timeout)

    monkeypatch.setattr(fakes.FakeEngine, "start", look)
    smoke(world)
    for name, content in tiny_recipe.tiny_tree().items():
        assert seen[f"{ROOT}/{name}"] == content
    assert f"{ROOT}/agentcompass-capsule.json" in seen
    assert f"{ROOT}/share/sbom.cdx.json" in seen
    assert {"/tmp", "/tmp/agentcompass-capsules", ROOT} <= set(seen)


@pytest.mark.parametrize(
    ("answer", "printed", "code"),
    [
        (("tool 1.2.4 with inner 7.8.9", 0), "tool 1.2.4 with inner 7.8.9", 0),
        (("tool 1.2.3 with inner 7.8.9", 1), "tool 1.2.3 with inner 7.8.9", 1),
        (("not found", 127), "not found", 127),
        (("", 0), "", 0),
        (("tool 1.2.3 with inner 7.8.9\na warning", 0), "tool 1.2.3 with inner 7.8.9\na warning", 0),
    ],
)
def test_a_tool_that_says_something_else_or_fails_has_not_passed(
    world: fakes.World, answer: tuple[str, int], printed: str, code: int
) -> None:
    world.engine.answers["tool"] = answer
    tool, *others = smoke(world)
    assert (tool.passed, tool.printed, tool.code) == (False, printed, code)
    assert all(item.passed for item in others)
    with pytest.raises(CapsuleError, match="The smoke test in an image failed") as raised:
        require_passed((tool, *others), "an image")
    assert raised.value.exit_code == 1
    assert f"tool: expected 'tool 1.2.3 with inner 7.8.9', got '{printed}' (status {code})" in str(
        raised.value
    )
    assert "seal-tree" not in str(raised.value)


def test_what_passed_is_no_error(world: fakes.World) -> None:
    require_passed(smoke(world), "an image")


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (Outcome(126, b"", b"exec format error"), r"\(status 126\): exec format error"),
        (Outcome(139, b"", b""), r"\(status 139\)\."),
        (Outcome(1, b"said on stdout", b""), r"\(status 1\): said on stdout"),
        (Outcome(1, b"", b"\xff"), r"\(status 1\): \\xff"),
    ],
)
def test_an_image_in_which_nothing_runs_is_said(world: fakes.World, outcome: Outcome, message: str) -> None:
    world.engine.outcome = outcome
    with pytest.raises(CapsuleError, match=f"own shell doesn't run in 'an-image' {message}") as raised:
        smoke(world)
    assert raised.value.hint is not None
    assert world.engine.containers == {}


def test_a_shell_that_ends_in_the_middle_passes_nothing(world: fakes.World) -> None:
    recipe = load_recipe(world.recipes / "tiny.toml")

    class Ends(fakes.FakeEngine):
        def start(self, container: str, timeout: float) -> Outcome:
            # The last program never returns: its status is missing.
            whole = super().start(container, timeout).stdout
            return Outcome(137, whole[: whole.rindex(b"\n\n")], b"")

    results = run_smoke(Ends(), "an-image", world.plan().output, recipe)
    assert [item.passed for item in results] == [True, True, False]
    assert results[-1].code == -1


@pytest.mark.parametrize("operation", ["create", "copy_in", "start"])
@pytest.mark.parametrize(
    "error", [ContainerError("refused"), ContainerTimeoutError("late"), KeyboardInterrupt()]
)
def test_no_container_is_left_behind(world: fakes.World, operation: str, error: BaseException) -> None:
    world.engine.failures[operation] = error
    with pytest.raises(type(error)):
        smoke(world)
    assert world.engine.containers == {}
    assert world.engine.calls[-1] == "remove_container"


def test_a_bundle_of_another_recipe_is_refused(world: fakes.World) -> None:
    other = world.folder / "node24.tar.gz"
    other.write_bytes(small_bundle().data())
    with pytest.raises(ContractError, match="is a capsule of node24, not of tiny"):
        run_smoke(world.engine, "an-image", other, load_recipe(world.recipes / "tiny.toml"))
    assert world.engine.calls == []


def test_a_bundle_that_breaks_the_contract_is_never_unpacked(world: fakes.World) -> None:
    bundle = world.plan().output
    bundle.write_bytes(bundle.read_bytes()[:-1])
    with pytest.raises(ContractError):
        smoke(world)
    assert world.engine.calls == []


def test_the_bare_image_holds_one_static_shell(world: fakes.World) -> None:
    folder = world.folder / "bare"
    folder.mkdir()
    pin, _ = tiny_recipe.inputs()["busybox-static"]
    image = bare_image(world.engine, world.cache.path(pin.sha256), folder)
    assert image.startswith("sha256:")
    (context,) = world.engine.contexts
    assert context["busybox"] == tiny_recipe.SHELL
    assert context["Dockerfile"].decode().splitlines() == [
        "FROM scratch",
        f"LABEL {LABEL}=smoke",
        "COPY busybox /bin/busybox",
        'RUN ["/bin/busybox", "ln", "-s", "busybox", "/bin/sh"]',
    ]
    assert (folder / "busybox").stat().st_mode & 0o777 == 0o755


def test_a_package_without_a_shell_makes_no_image(world: fakes.World) -> None:
    pin, _ = tiny_recipe.inputs()["texts"]
    with pytest.raises(InputError, match="usr/bin/busybox"):
        bare_image(world.engine, world.cache.path(pin.sha256), world.folder)
    assert world.engine.calls == []


def test_results_for_machines(world: fakes.World) -> None:
    assert smoke(world)[1].to_json() == {
        "tool": "seal-tree",
        "passed": True,
        "expected": "seal-tree 1.0.0",
        "printed": "seal-tree 1.0.0",
        "code": 0,
    }
