"""A Podman build that is ended: its containers are told from others', and gone whenever they were made."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.engine import podman_abort, process_tree
from capsule_build.engine.podman_abort import end_foreign, end_own
from capsule_build.engine.protocol import ContainerError, EngineInfo
from capsule_build.engine.service import PodmanService, answers
from capsule_build.engine.working import WorkingContainers

if TYPE_CHECKING:
    from collections.abc import Callable


def info(root: Path) -> EngineInfo:
    return EngineInfo(
        name="podman",
        client_version="1",
        server_version="4.3.1",
        api_version="4.3.1",
        storage_driver="overlay",
        storage_root=str(root),
        oci_runtime="runc",
        architecture="amd64",
        rootless=False,
        address="unix:///run/s",
    )


def add_container(root: Path, name: str, state: object | None) -> Path:
    folder = root / "overlay-containers" / name
    (folder / "userdata").mkdir(parents=True)
    if state is not None:
        text = state if isinstance(state, str) else json.dumps(state)
        (folder / "userdata" / "buildah.json").write_text(text)
    return folder


def state_of(domains: list[str] | None) -> dict[str, object]:
    return {"type": "buildah 0.0.1", "CommonBuildOpts": {"DNSSearch": domains, "ShmSize": "1"}}


def test_a_builds_containers_are_told_from_all_others(tmp_path: Path) -> None:
    working, other = WorkingContainers(info(tmp_path)), WorkingContainers(info(tmp_path))
    assert working.found() == []
    (mark,) = json.loads(working.parameters()["dnssearch"])
    (others_mark,) = json.loads(other.parameters()["dnssearch"])
    add_container(tmp_path, "mine", state_of([mark]))
    add_container(tmp_path, "mine-too", state_of([mark]))
    add_container(tmp_path, "another-build", state_of([others_mark]))
    add_container(tmp_path, "by-hand", state_of(None))
    add_container(tmp_path, "broken", f'{{"CommonBuildOpts": {{"DNSSearch": ["{mark}"]')
    add_container(tmp_path, "older-buildah", {"CommonBuildOpts": None, "mark": mark})
    add_container(tmp_path, "no-build", None)
    (tmp_path / "overlay-containers" / "containers.json").write_text(f'["{mark}"]')
    assert working.found() == ["mine", "mine-too"]
    assert other.found() == ["another-build"]


def test_a_container_whose_state_is_not_there_yet_is_half_made(tmp_path: Path) -> None:
    working = WorkingContainers(info(tmp_path))
    assert working.are_whole()
    folder = add_container(tmp_path, "new", None)
    assert not working.are_whole()
    long_ago = time.time() - 60
    os.utime(folder, (long_ago, long_ago))
    assert working.are_whole(), "one that a program without builds made"
    add_container(tmp_path, "whole", state_of(None))
    assert working.are_whole()


@dataclass
class World:
    """A service with its answer and its containers, which notes what is done in what order."""

    answer_ends_after: int = 2
    containers: set[str] = field(default_factory=set)
    made_at_the_end: set[str] = field(default_factory=set)
    refusals: int = 0
    done: list[str] = field(default_factory=list)

    def end_steps(self) -> None:
        self.answer_ends_after -= 1

    def restart(self, may_end: Callable[[], bool], seconds: float) -> None:
        assert may_end()
        assert seconds > 0
        self.containers |= self.made_at_the_end
        self.done.append("restart")

    def join(self, timeout: float | None = None) -> None:
        assert timeout

    def is_alive(self) -> bool:
        return self.answer_ends_after > 0

    def break_off(self) -> None:
        self.containers |= self.made_at_the_end
        self.done.append("break off")

    def found(self) -> list[str]:
        return sorted(self.containers)

    def are_whole(self) -> bool:
        return True

    def remove(self, container: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ContainerError("in use")
        self.containers.remove(container)
        self.done.append(container)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman_abort, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(podman_abort, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(podman_abort, "_FOREIGN_SECONDS", 0.2)


def test_what_a_stage_makes_behind_the_answer_goes_too() -> None:
    world = World(containers={"a"}, made_at_the_end={"b", "c"}, refusals=2)
    assert end_own(world, world, world, world.remove) == []
    assert world.done[0] == "restart"
    assert sorted(world.done[1:]) == ["a", "b", "c"]


def test_a_step_that_never_ends_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman_abort, "ABORT_SECONDS", 0.05)
    world = World(answer_ends_after=10**9, containers={"a"})
    assert end_own(world, world, world, world.remove) == []
    assert world.done == ["restart", "a"]


def test_containers_that_stay_are_named() -> None:
    world = World(containers={"a", "b"}, refusals=10**9)
    assert end_own(world, world, world, world.remove) == ["a", "b"]
    world = World(containers={"a"}, refusals=10**9)
    assert end_foreign(world, world, world.remove) == ["a"]


def test_in_a_service_of_others_only_the_builds_own_containers_go() -> None:
    world = World(containers={"a"}, made_at_the_end={"b"}, refusals=1)
    assert end_foreign(world, world, world.remove) == []
    assert world.done[0] == "break off"
    assert sorted(world.done[1:]) == ["a", "b"]


_LISTENING = """#!{python} -SE
import socket, sys
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[-1].removeprefix("unix://"))
    listening.listen()
    while True:
        listening.accept()[0].close()
"""


def test_a_service_stands_still_while_it_is_asked_whether_it_may_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(_LISTENING.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CONTAINERS_CONF", "/dev/null")
    service = PodmanService()
    try:
        before, asked = service._process.pid, []

        def may_end() -> bool:
            asked.append(process_tree.stands_still(before))
            return len(asked) == 3

        service.restart(may_end, 60)
        assert asked == [True, True, True]
        assert service._process.pid != before
        assert not Path(f"/proc/{before}").exists()
        assert answers(Path(service.address.removeprefix("unix://")))
        assert not process_tree.stands_still(service._process.pid)

        service.restart(lambda: False, 0.05)
        assert answers(Path(service.address.removeprefix("unix://")))
    finally:
        service.stop()
    assert not Path(service.address.removeprefix("unix://")).exists()
