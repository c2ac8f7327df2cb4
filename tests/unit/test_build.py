"""A build gives a bundle and its record, or leaves everything as it was."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from capsule_build import build as module
from capsule_build.build import BuildResult, build, prepare_output
from capsule_build.engine.protocol import BuildError, ContainerError, Engine, EngineLostError
from capsule_build.release.provenance import read_provenance
from capsule_build.runtime.archive import check_bundle
from capsule_build.runtime.errors import CapsuleError, ContractError, InputError, UsageError
from tests import fakes, tiny_recipe

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "tiny-v1-linux-x86_64-glibc.tar.gz"
RECORD = f"{NAME}.build.json"
ALL = [NAME, *(f"{NAME}.{suffix}" for suffix in ("build.json", "cdx.json", "provenance.json", "sha256"))]
SIGNATURES = [f"{NAME}.{part}sigstore.json" for part in ("", "provenance.", "sbom.")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    fakes.detach(monkeypatch)
    return fakes.World(tmp_path)


def built(world: fakes.World, libc: str = "glibc") -> BuildResult:
    return build(world.plan(libc=libc), world.shop, world.report)


def test_the_fake_engine_is_an_engine(world: fakes.World) -> None:
    engine: Engine = world.engine
    reporter: module.Reporter = world.report
    assert (engine.name, reporter) == ("fake", world.report)


def test_a_build_gives_a_bundle_and_its_record(world: fakes.World) -> None:
    result = built(world)
    bundle = world.dist / NAME
    assert world.left_over() == [f"dist/{name}" for name in ALL]
    info = check_bundle(bundle)
    assert info.manifest == result.plan.manifest
    assert info.sha256 == result.packed.sha256 == hashlib.sha256(bundle.read_bytes()).hexdigest()
    record = json.loads((world.dist / RECORD).read_bytes())
    assert record["bundle"] == {"filename": NAME, "sha256": info.sha256, "size": info.size}
    assert [tool.passed for tool in result.smoke] == [True, True, True]
    assert {path.stat().st_mode & 0o777 for path in world.dist.iterdir()} == {0o644}


def test_what_lies_beside_it_is_about_it(world: fakes.World) -> None:
    result = built(world)
    packed = result.packed
    assert (world.dist / f"{NAME}.sha256").read_text() == f"{packed.sha256}  {NAME}\n"
    provenance = read_provenance((world.dist / f"{NAME}.provenance.json").read_bytes())
    assert (provenance.filename, provenance.sha256) == (NAME, packed.sha256)
    assert (provenance.capsule.tag, provenance.asked.recipe) == ("tiny-v1", "tiny")
    assert {pin.sha256 for pin in provenance.pins} == {item.sha256 for item in result.inputs}
    sbom = json.loads((world.dist / f"{NAME}.cdx.json").read_bytes())
    assert sbom["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": packed.sha256}]


def test_its_steps_are_told_in_order(world: fakes.World) -> None:
    built(world)
    assert world.report.steps == ["Inputs", "Build with fake", "Pack", "Check", "Smoke"]
    assert "log: Step 1/2" in world.report.heard
    assert world.report.bytes_packed > sum(len(data) for data in tiny_recipe.tiny_tree().values())


def test_nothing_of_it_stays_in_the_engine(world: fakes.World) -> None:
    built(world)
    assert world.engine.containers == {}
    assert world.engine.calls.count("create") == world.engine.calls.count("remove_container") == 2


def test_the_same_plan_gives_the_same_bytes(world: fakes.World) -> None:
    first = built(world).packed
    bundle = (world.dist / NAME).read_bytes()
    record = json.loads((world.dist / RECORD).read_bytes())
    before = os.umask(0o077)
    try:
        assert built(world).packed == first
    finally:
        os.umask(before)
    assert (world.dist / NAME).read_bytes() == bundle
    again = json.loads((world.dist / RECORD).read_bytes())
    # The only part that knows the clock.
    assert {**again, "builder": None} == {**record, "builder": None}


def test_the_engine_is_given_the_rendered_context(world: fakes.World) -> None:
    built(world, libc="musl")
    context, bare = world.engine.contexts
    assert "tiny-1.2.3-linux-x86_64-musl" in context["Dockerfile"].decode()
    assert context["inputs/tool/tool-1.2.3-py3-none-musl.whl"] == b"a wheel for musl"
    assert set(bare) == {"Dockerfile", "busybox"}
    assert world.engine.build_options[0]["tag"] == "localhost/capsule-build/tiny:linux-x86_64-musl"
    assert world.engine.build_options[0]["keep"] is False


def test_an_output_of_the_users_own_has_its_record_beside_it(world: fakes.World) -> None:
    output = world.folder / "elsewhere.tar.gz"
    build(world.plan(output=output), world.shop, world.report)
    assert output.is_file()
    beside = sorted(path.name for path in world.folder.glob("elsewhere*"))
    assert beside == [name.replace(NAME, output.name) for name in ALL]
    assert world.left_over() == []


def test_a_missing_default_folder_is_made(world: fakes.World) -> None:
    world.dist.rmdir()
    built(world)
    assert (world.dist / NAME).is_file()


def test_a_capsule_that_can_not_be_tried_is_not_built(world: fakes.World) -> None:
    plan = world.plan()
    plan = replace(plan, options=replace(plan.options, build_architecture="aarch64"))
    with pytest.raises(UsageError, match="for x86_64 can't be tried on aarch64"):
        build(plan, world.shop, world.report)
    assert world.engine.calls == []


# Where a build can fail: a function of its own, or an operation of the engine.
FUNCTIONS = (
    "acquire",
    "render",
    "collect",
    "describe_tree",
    "pack",
    "check_bundle",
    "smoke.bare_image",
    "smoke.run_smoke",
    "smoke.require_passed",
    "make_record",
    "make_provenance",
    "outer_sbom",
    "publish",
)
OPERATIONS = ("build", "create", "copy_out", "build-bare", "copy_in", "start", "info", "remove_container")
ERRORS = (
    CapsuleError("it failed"),
    InputError("it failed"),
    OSError(errno.ENOSPC, "No space left on device"),
    KeyboardInterrupt(),
    SystemExit(143),
)


def previous(world: fakes.World) -> dict[str, tuple[bytes, int]]:
    """Lay what an earlier build and its release left, and return what it is."""
    for name in (*ALL, *SIGNATURES):
        (world.dist / name).write_bytes(f"the previous {name}".encode())
    return state(world)


def state(world: fakes.World) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in world.dist.iterdir()}


def raiser(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", FUNCTIONS)
def test_a_failure_leaves_everything_as_it_was(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch, stage: str, error: BaseException
) -> None:
    before = previous(world)
    monkeypatch.setattr(f"capsule_build.build.{stage}", raiser(error))
    with pytest.raises(type(error)) as raised:
        built(world)
    assert raised.value is error
    assert state(world) == before
    assert len(world.left_over()) == len(before)
    assert world.engine.containers == {}


@pytest.mark.parametrize(
    "error",
    [ContainerError("it failed"), EngineLostError("it went away"), KeyboardInterrupt()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_of_the_engine_leaves_everything_as_it_was(
    world: fakes.World, operation: str, error: BaseException
) -> None:
    before = previous(world)
    world.engine.failures[operation] = error
    with pytest.raises(type(error)):
        built(world)
    assert state(world) == before
    assert len(world.left_over()) == len(before)
    if operation != "remove_container":
        assert world.engine.containers == {}


def test_a_first_build_that_fails_leaves_nothing(world: fakes.World) -> None:
    world.engine.answers["tool"] = ("something else", 0)
    with pytest.raises(CapsuleError, match="The smoke test in an image that holds one static shell failed"):
        built(world)
    assert world.left_over() == []


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("share/licenses/tool/LICENSE", "tool 1.2.3 comes without a licence text"),
        ("bin/tool", "tool"),
        ("bin/capsule-exec", "launcher"),
        ("abi/musl/ld-musl-x86_64.so.1", "loader"),
    ],
)
def test_a_tree_that_breaks_the_contract_is_no_bundle(world: fakes.World, missing: str, message: str) -> None:
    before = previous(world)
    del world.engine.files[missing]
    with pytest.raises(ContractError, match=message):
        built(world)
    assert state(world) == before
    assert "start" not in world.engine.calls


def test_a_tree_without_a_package_that_the_recipe_names_is_no_bundle(world: fakes.World) -> None:
    place = "runtime/tool/node_modules/inner/package.json"
    world.engine.files[place] = tiny_recipe.package_json("outer", "1.0.0", "MIT")
    with pytest.raises(ContractError, match=r"runtime/tool/node_modules has no inner"):
        built(world)
    del world.engine.files[place]
    with pytest.raises(ContractError, match=r"no readable runtime/tool/node_modules/inner/package\.json"):
        built(world)
    assert world.left_over() == []


def test_a_link_out_of_the_tree_is_no_bundle(world: fakes.World) -> None:
    world.engine.links["bin/out"] = "/etc/passwd"
    with pytest.raises(ContractError, match="bin/out"):
        built(world)
    assert world.left_over() == []


def test_what_was_written_must_be_what_was_planned(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.folder / "other.tar.gz"
    build(world.plan(libc="musl", output=other), world.shop, world.report)
    manifest = check_bundle(other).manifest
    for changes in ({"manifest": manifest}, {"sha256": "0" * 64}):
        monkeypatch.setattr(
            module, "check_bundle", lambda path, new=changes: replace(check_bundle(path), **new)
        )
        with pytest.raises(ContractError, match="not the one that was planned"):
            built(world)
    assert world.left_over() == []


@pytest.mark.parametrize("last", range(len(ALL)))
def test_a_rename_that_fails_takes_the_others_back(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    before = previous(world)
    rename = Path.replace
    renamed: list[str] = []

    def fail_in_the_end(path: Path, target: Path) -> Path:
        if path.name.endswith(".part") and target.name in ALL and len(renamed) <= last:
            if len(renamed) == last:
                renamed.append("")
                raise KeyboardInterrupt
            renamed.append(target.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", fail_in_the_end)
    with pytest.raises(KeyboardInterrupt):
        built(world)
    assert NAME not in renamed
    assert state(world) == before


def test_the_bundle_comes_last_and_the_old_ones_signatures_are_gone_by_then(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous(world)
    rename = Path.replace
    seen: list[list[str]] = []

    def look(path: Path, target: Path) -> Path:
        if target.name == NAME:
            seen.append(sorted(path.name for path in world.dist.iterdir() if path.name[0] != "."))
            assert (world.dist / f"{NAME}.sha256").read_text().endswith(f"  {NAME}\n")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", look)
    built(world)
    assert seen == [ALL]
    assert world.left_over() == [f"dist/{name}" for name in ALL]


def failing(world: fakes.World) -> BuildError:
    error = BuildError("Step 2 failed.", step="2/2", log_tail=("oh no",), hint="Look into it.", kept=("c1",))
    world.engine.failures["build"] = error
    return error


def test_a_kept_build_leaves_its_log_and_says_where(world: fakes.World) -> None:
    world.keep = True
    error = failing(world)
    with pytest.raises(BuildError) as raised:
        built(world)
    assert raised.value is error
    log = world.dist / f"{NAME}.build.log"
    assert log.read_text() == "Step 1/2\nStep 2/2\n"
    assert raised.value.hint == "Look into it."
    assert raised.value.__notes__ == [f"The whole log is {log}."]
    assert world.engine.build_options[0]["keep"] is True
    assert world.left_over() == [f"dist/{log.name}"]


def test_without_keep_there_is_no_log(world: fakes.World) -> None:
    failing(world)
    with pytest.raises(BuildError) as raised:
        built(world)
    assert not hasattr(raised.value, "__notes__")
    assert world.left_over() == []


def test_a_good_output_can_be_prepared(tmp_path: Path) -> None:
    prepare_output(tmp_path / "x.tar.gz", may_make_folder=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/x.tar.gz", "folder .*missing isn't there"),
        ("x.tgz", r"doesn't end in \.tar\.gz"),
        ("folder.tar.gz", "is a folder"),
        ("file/x.tar.gz", "isn't there"),
        ("my own.tar.gz", "none that a bundle can have"),
    ],
)
def test_an_output_that_can_not_be_is_refused_before_any_work(
    world: fakes.World, name: str, message: str
) -> None:
    (world.folder / "folder.tar.gz").mkdir()
    (world.folder / "file").write_bytes(b"")
    with pytest.raises(UsageError, match=message) as raised:
        build(world.plan(output=world.folder / name), world.shop, world.report)
    assert raised.value.exit_code == 2
    assert world.engine.calls == []
    assert world.report.heard == []


def test_a_folder_that_is_not_writable_is_refused() -> None:
    # By its modes root may write there, but the file system takes no file.
    with pytest.raises(UsageError, match="is not writable"):
        prepare_output(Path("/proc/x.tar.gz"), may_make_folder=False)


def test_a_folder_that_turns_out_not_to_be_writable_is_refused(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tempfile.mkstemp

    def refuse(*, prefix: str = "", suffix: str = "", dir: Path | None = None) -> tuple[int, str]:  # noqa: A002 - its name
        if dir == world.dist:
            raise OSError(errno.EROFS, "Read-only file system")
        return made(prefix=prefix, suffix=suffix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    with pytest.raises(UsageError, match="is not writable: Read-only file system"):
        built(world)
    assert world.left_over() == []


def test_what_a_killed_build_left_is_removed_and_a_running_one_is_left_alone(world: fakes.World) -> None:
    stale = world.dist / ".old-v1-linux-x86_64-glibc.tar.gz.abc.part"
    stale.write_bytes(b"half")
    held = world.dist / ".new-v1-linux-x86_64-glibc.tar.gz.def.part"
    with held.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        prepare_output(world.dist / "x.tar.gz", may_make_folder=False)
        assert sorted(path.name for path in world.dist.glob(".*")) == [held.name]
