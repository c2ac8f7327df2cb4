"""Every input is the pinned file, or says why it isn't."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build import inputs as module
from capsule_build.fetch import Fetched, VanishedError, WrongFileError, fetch_all
from capsule_build.inputs import Origin, ReadyInput, acquire
from capsule_build.runtime.errors import UsageError
from tests import archives, fakes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from capsule_build.components import Component
    from capsule_build.pins import Pin
    from capsule_build.plan import BuildPlan


@pytest.fixture(autouse=True)
def _own_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CAPSULE_SOURCE_MIRROR", "CAPSULE_DEBIAN_MIRROR"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def world(tmp_path: Path) -> fakes.World:
    (tmp_path / "scratch").mkdir()
    return fakes.World(tmp_path)


def ready(world: fakes.World, plan: BuildPlan) -> dict[str, ReadyInput]:
    got = acquire(
        plan,
        world.shop.components,
        cache=world.cache,
        progress=world.report,
        scratch=world.folder / "scratch",
        newer=world.newer,
    )
    assert [item.planned for item in got] == list(plan.inputs)
    return {item.planned.key: item for item in got}


def test_what_is_pinned_and_cached_is_taken_from_there(world: fakes.World) -> None:
    got = ready(world, world.plan(libc="musl"))
    assert set(got) == {"tool", "helper", "musl-dev", "texts", "build/busybox-static", "build/helper"}
    for item in got.values():
        assert item.origin is Origin.PIN
        assert item.pin == item.planned.pin
        assert item.path == world.cache.path(item.sha256)
        assert hashlib.sha256(item.path.read_bytes()).hexdigest() == item.sha256
        assert item.size == item.path.stat().st_size
        assert item.file == (item.pin.file if item.pin else "")
    assert got["tool"].file == "tool-1.2.3-py3-none-musl.whl"
    assert got["helper"].reference == "debian:helper==1:2.0-1"
    assert world.report.heard == []


def test_a_poisoned_file_of_the_cache_is_never_used(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan()
    pin = plan.inputs[0].pin
    assert pin is not None
    place = world.cache.path(pin.sha256)
    place.chmod(0o644)
    place.write_bytes(b"a poisoned whl!"[: pin.size])

    def gone(_pin: Pin, _transfer: object) -> Path:
        raise VanishedError("gone")

    monkeypatch.setattr("capsule_build.fetch.obtain.from_origin", gone)
    with pytest.raises(VanishedError):
        ready(world, plan)
    assert any("is not what its name says" in text for text in world.report.heard)
    assert not place.exists()


def test_a_wrong_file_from_the_origin_is_refused_and_not_kept(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan()
    pin = plan.inputs[0].pin
    assert pin is not None
    world.cache.path(pin.sha256).unlink()

    def wrong(_pin: Pin, transfer: Any) -> Path:
        file: Path = transfer.folder / "file"
        file.write_bytes(b"x" * (pin.size or 0))
        return file

    monkeypatch.setattr("capsule_build.fetch.obtain.from_origin", wrong)
    with pytest.raises(WrongFileError, match=r"tool \(x86_64-glibc\)") as raised:
        ready(world, plan)
    assert raised.value.exit_code == 3
    assert world.cache.get(pin.sha256, pin.size) is None
    assert list((world.cache.root / "staging").iterdir()) == []


def test_a_version_that_is_not_pinned_is_looked_up_and_its_digest_said(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"another version"
    digest = hashlib.sha256(data).hexdigest()
    asked: list[tuple[str, str, str]] = []

    def look_up(component: Component, target: str, version: str, *, cache: object) -> Pin:
        asked.append((component.name, target, version))
        with world.cache.stage() as folder:
            (folder / "file").write_bytes(data)
            world.cache.adopt(folder / "file", digest)
        pin = world.plan().inputs[0].pin
        assert pin is not None
        return replace(pin, version=version, file="t.whl", sha256=digest, size=len(data))

    monkeypatch.setattr(module, "look_up", look_up)
    got = ready(world, world.plan(versions={"tool": "1.9.0"}))
    assert asked == [("tool", "x86_64-glibc", "1.9.0")]
    assert (got["tool"].origin, got["tool"].version, got["tool"].sha256) == (Origin.LOOK_UP, "1.9.0", digest)
    assert got["tool"].path.read_bytes() == data
    (note,) = [text for text in world.report.heard if text.startswith("note")]
    assert "1.9.0" in note
    assert digest in note


def test_a_version_that_does_not_exist_is_an_error_of_usage(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object, **__: object) -> Pin:
        raise UsageError("There is no tool 1.999.0.")

    monkeypatch.setattr(module, "look_up", look_up)
    with pytest.raises(UsageError, match=r"1\.999\.0"):
        ready(world, world.plan(versions={"tool": "1.999.0"}))


def test_what_was_taken_in_a_vanished_pins_place_is_said_to_be_newer(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.newer = True
    newer_asked: list[bool] = []

    def fetch(pins: Iterable[Pin], *, newer: bool, **options: Any) -> dict[Pin, Fetched]:
        newer_asked.append(newer)
        fetched = fetch_all(pins, newer=newer, **options)
        return {
            pin: replace(got, taken=replace(pin, version="1:3.0-1", file="helper_3.0-1_amd64.deb"))
            if pin.component == "helper"
            else got
            for pin, got in fetched.items()
        }

    monkeypatch.setattr(module, "fetch_all", fetch)
    got = ready(world, world.plan())
    assert newer_asked == [True]
    for key in ("helper", "build/helper"):
        assert got[key].origin is Origin.NEWER
        assert (got[key].version, got[key].file) == ("1:3.0-1", "helper_3.0-1_amd64.deb")
        assert got[key].reference == "debian:helper==1:3.0-1"
    assert got["texts"].origin is Origin.PIN


def test_a_users_own_package_takes_a_pins_place(world: fakes.World) -> None:
    own = world.folder / "mine.deb"
    own.write_bytes(archives.deb({"usr/share/helper": b"mine"}, control="Version: 1:2.0-1\n"))
    got = ready(world, world.plan(sources={"helper": own}))
    item = got["helper"]
    assert (item.origin, item.pin, item.version) == (Origin.SOURCE, None, "1:2.0-1")
    assert item.path == own
    assert item.sha256 == hashlib.sha256(own.read_bytes()).hexdigest()
    assert item.size == own.stat().st_size
    assert item.reference == str(own)
    assert item.license == "MIT"
    assert got["build/helper"].origin is Origin.PIN


def test_a_users_own_package_of_another_version_is_refused(world: fakes.World) -> None:
    own = world.folder / "mine.deb"
    own.write_bytes(archives.deb({}, control="Version: 9\n"))
    with pytest.raises(UsageError, match=r"is version 9; 1:2\.0-1 is asked for"):
        ready(world, world.plan(sources={"helper": own}))
