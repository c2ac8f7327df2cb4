"""The build record says what was asked, what went in and what did the work."""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build import __version__
from capsule_build.builder import LOCAL_BUILDER
from capsule_build.fetch import Silence
from capsule_build.inputs import Origin, ReadyInput, acquire
from capsule_build.pack import Packed
from capsule_build.record import make_record
from tests import archives, fakes, tiny_recipe

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.plan import BuildPlan

PACKED = Packed("d" * 64, 1234, 9)
STARTED = datetime.datetime(2026, 11, 29, 12, 0, 0, tzinfo=datetime.UTC)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return fakes.World(tmp_path)


def made_of(world: fakes.World, plan: BuildPlan) -> tuple[ReadyInput, ...]:
    scratch = world.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return acquire(plan, world.shop.components, cache=world.cache, progress=Silence(), scratch=scratch)


def record(
    world: fakes.World,
    plan: BuildPlan,
    inputs: tuple[ReadyInput, ...] | None = None,
    dockerfile: str = "FROM scratch",
) -> bytes:
    return make_record(
        plan,
        made_of(world, plan) if inputs is None else inputs,
        PACKED,
        pins=world.shop.pins,
        templates=world.shop.templates,
        dockerfile=dockerfile,
        engine=world.engine.info(),
        started=STARTED,
    )


def read(world: fakes.World, plan: BuildPlan, **more: Any) -> dict[str, Any]:
    document = json.loads(record(world, plan, **more))
    assert isinstance(document, dict)
    return document


def test_it_says_what_was_built(world: fakes.World) -> None:
    document = read(world, world.plan())
    assert document["schema_version"] == "capsule-build.record.v2"
    assert document["bundle"] == {
        "filename": "tiny-v1-linux-x86_64-glibc.tar.gz",
        "sha256": "d" * 64,
        "size": 1234,
    }
    assert document["capsule"] == {
        "runtime": {"id": "tiny", "version": "1.2.3"},
        "tag": "tiny-v1",
        "platform": "linux-x86_64-glibc",
        "install_root": "/tmp/agentcompass-capsules/tiny-1.2.3-linux-x86_64-glibc",
    }
    assert document["epoch"] == tiny_recipe.EPOCH
    assert document["overrides"] == []


def test_it_says_what_was_asked(world: fakes.World) -> None:
    own = world.folder / "mine.deb"
    own.write_bytes(archives.deb({}, control="Version: 1:2.0-1\n"))
    plan = world.plan(libc="musl", versions={"tool": "1.2.3"}, sources={"helper": own})
    plan = replace(plan, options=replace(plan.options, epoch=7))
    assert read(world, plan)["asked"] == {
        "recipe": "tiny",
        "libc": "musl",
        "architecture": "x86_64",
        "versions": {"tool": "1.2.3"},
        "sources": ["helper"],
        "epoch": 7,
    }


def test_it_names_every_input_with_its_digest(world: fakes.World) -> None:
    plan = world.plan()
    entries = read(world, plan)["inputs"]
    assert len(entries) == len(plan.inputs)
    for entry, item in zip(entries, plan.inputs, strict=True):
        assert item.pin is not None
        assert entry == {
            "name": item.name,
            "component": item.component,
            "role": item.role.value,
            "version": item.version,
            "origin": "pin",
            "reference": item.pin.reference,
            "pin": {
                "target": item.pin.target,
                "kind": item.pin.kind,
                "package": item.pin.package,
                "version": item.pin.version,
                "file": item.pin.file,
                "locator": item.pin.locator,
            },
            "file": item.pin.file,
            "sha256": item.pin.sha256,
            "size": item.pin.size,
            "license": "MIT",
        }


@pytest.mark.parametrize(
    ("origin", "overrides"),
    [(Origin.PIN, []), (Origin.LOOK_UP, ["helper"]), (Origin.NEWER, ["helper"]), (Origin.SOURCE, ["helper"])],
)
def test_what_differs_from_the_pins_is_an_override(
    world: fakes.World, origin: Origin, overrides: list[str]
) -> None:
    plan = world.plan()
    inputs = tuple(
        replace(item, origin=origin) if item.planned.component == "helper" else item
        for item in made_of(world, plan)
    )
    assert read(world, plan, inputs=inputs)["overrides"] == overrides


def test_another_epoch_than_the_pins_is_an_override(world: fakes.World) -> None:
    assert read(world, replace(world.plan(), epoch=12345))["overrides"] == ["epoch"]


def test_a_users_own_path_stays_at_home(world: fakes.World) -> None:
    own = world.folder / "mine.deb"
    own.write_bytes(archives.deb({}, control="Version: 1:2.0-1\n"))
    data = record(world, world.plan(sources={"helper": own}))
    assert str(world.folder).encode() not in data
    entry = next(item for item in json.loads(data)["inputs"] if item["name"] == "helper")
    assert (entry["reference"], entry["pin"]) == (None, None)
    assert (entry["file"], entry["origin"]) == ("helper_2.0-1_amd64.deb", "source")
    assert entry["sha256"] == hashlib.sha256(own.read_bytes()).hexdigest()


def test_it_is_the_same_each_time(world: fakes.World) -> None:
    data = record(world, world.plan())
    first, second = json.loads(data), read(world, world.plan())
    for document in (first, second):
        # The only part that knows the clock.
        del document["builder"]
    assert first == second
    assert data == (json.dumps(json.loads(data), indent=2, sort_keys=True) + "\n").encode()


def test_it_says_what_did_the_work(world: fakes.World) -> None:
    builder = read(world, world.plan())["builder"]
    assert builder["capsule_build"] == __version__
    assert builder["zlib_ng"] == metadata.version("zlib-ng")
    assert builder["engine"] == {"name": "fake", "client": "1.0", "server": "2.0"}
    assert builder["started"] == "2026-11-29T12:00:00Z"
    assert builder["finished"] >= builder["started"]
    assert (builder["id"], builder["invocation"]) == (LOCAL_BUILDER, None)


@pytest.mark.parametrize(
    ("file", "definition"),
    [
        ("tiny.toml", "recipe"),
        ("templates/scripts/step.sh", "templates"),
        ("templates/tiny.Dockerfile.j2", "templates"),
    ],
)
def test_a_change_of_a_definition_is_seen(world: fakes.World, file: str, definition: str) -> None:
    before = read(world, world.plan())["definitions"]
    path = world.recipes / file
    path.write_bytes(path.read_bytes() + b"\n# changed\n")
    after = read(world, world.plan())["definitions"]
    assert [key for key in before if before[key] != after[key]] == [definition]


def test_a_new_name_of_a_template_is_seen(world: fakes.World) -> None:
    before = read(world, world.plan())["definitions"]["templates"]
    script = world.recipes / "templates" / "scripts" / "step.sh"
    script.rename(script.with_name("other.sh"))
    assert read(world, world.plan())["definitions"]["templates"] != before


def test_the_dockerfile_is_known_by_its_digest(world: fakes.World) -> None:
    document = read(world, world.plan(), dockerfile="FROM scratch AS x")
    digest = hashlib.sha256(b"FROM scratch AS x").hexdigest()
    assert document["definitions"]["dockerfile"] == f"sha256:{digest}"
