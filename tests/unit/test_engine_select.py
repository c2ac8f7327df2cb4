"""Choosing an engine, and containers that go whatever happens, with engines made up for the purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from capsule_build.engine import ContainerError, ContainerSpec, Engine, container, select_engine
from capsule_build.engine.protocol import (
    EngineDownError,
    EngineMissingError,
    check_reference,
    qualified,
)
from capsule_build.runtime.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class Made:
    """An engine that notes what is done to it."""

    def __init__(self, name: str, *, removal_fails: bool = False) -> None:
        self.name = name
        self.done: list[str] = []
        self._removal_fails = removal_fails

    def create(self, spec: ContainerSpec, *, name: str) -> str:
        self.done.append("create")
        if spec.image == "interrupted":
            raise KeyboardInterrupt
        return name

    def remove_container(self, container: str) -> None:
        assert container.startswith("capsule-build-")
        self.done.append("remove")
        if self._removal_fails:
            raise ContainerError("it can't be removed")

    def close(self) -> None:
        self.done.append("close")


def opening(engine: Made | EngineError) -> Callable[[], Engine]:
    def open_engine() -> Engine:
        if isinstance(engine, EngineError):
            raise engine
        return cast("Engine", engine)

    return open_engine


def select(
    choice: str | None, docker: Made | EngineError, podman: Made | EngineError
) -> tuple[str, list[str]]:
    said: list[str] = []
    engines = {"docker": opening(docker), "podman": opening(podman)}
    with select_engine(choice, say=said.append, engines=engines) as engine:
        return engine.name, said


def test_docker_is_used_without_a_choice_and_nothing_is_said() -> None:
    docker, podman = Made("docker"), Made("podman")
    assert select(None, docker, podman) == ("docker", [])
    assert docker.done == ["close"]
    assert podman.done == []


def test_podman_is_used_where_docker_cannot_be_and_one_line_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    name, said = select(None, EngineDownError("Docker's daemon is not running."), Made("podman"))
    assert name == "podman"
    assert said == ["Docker's daemon is not running. Podman is used."]


def test_the_line_names_a_docker_host_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "bogus")
    _, said = select(None, EngineDownError("What listens there: no port"), Made("podman"))
    assert said == ["DOCKER_HOST is set to 'bogus'. What listens there: no port. Podman is used."]


@pytest.mark.parametrize("choice", ["docker", "podman"])
def test_a_choice_is_never_replaced(choice: str) -> None:
    failing = EngineMissingError("It is not installed.")
    engines: dict[str, Made | EngineError] = {
        "docker": Made("docker"),
        "podman": Made("podman"),
        choice: failing,
    }
    with pytest.raises(EngineMissingError, match="not installed"):
        select(choice, engines["docker"], engines["podman"])


def test_where_no_engine_can_be_used_each_says_why() -> None:
    with pytest.raises(EngineError) as caught:
        select(None, EngineDownError("Docker is down."), EngineMissingError("Podman is not installed."))
    assert caught.value.exit_code == 4
    assert "Docker is down." in caught.value.message
    assert "Podman is not installed." in caught.value.message
    assert "doctor" in (caught.value.hint or "")


def test_an_unknown_engine_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="'lxc' is not a container engine: docker or podman"):
        select("lxc", Made("docker"), Made("podman"))


def test_an_engine_is_closed_also_after_an_error() -> None:
    docker = Made("docker")

    def failing() -> None:
        with select_engine("docker", say=print, engines={"docker": opening(docker)}):
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any error will do
        failing()
    assert docker.done == ["close"]


SPEC = ContainerSpec("image", ("/program",))


def test_a_container_whose_making_is_interrupted_is_removed() -> None:
    engine = Made("docker")
    with (
        pytest.raises(KeyboardInterrupt),
        container(cast("Engine", engine), ContainerSpec("interrupted", ("/program",))),
    ):
        pass
    assert engine.done == ["create", "remove"]


def test_the_first_error_is_not_hidden_by_one_of_the_removal() -> None:
    engine = Made("docker", removal_fails=True)

    def failing() -> None:
        with container(cast("Engine", engine), SPEC):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        failing()
    assert "could not be removed: it can't be removed" in caught.value.__notes__[0]


def test_a_removal_that_fails_is_an_error_of_its_own() -> None:
    engine = Made("docker", removal_fails=True)
    with pytest.raises(ContainerError, match="can't be removed"), container(cast("Engine", engine), SPEC):
        pass


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("some/thing", "docker.io/some/thing:latest"),
        ("quay.io/some/thing:1", "quay.io/some/thing:1"),
        ("localhost:5000/thing", "localhost:5000/thing:latest"),
        ("localhost/thing", "localhost/thing:latest"),
        ("some/thing@sha256:00", "docker.io/some/thing@sha256:00"),
    ],
)
def test_a_short_name_is_completed_as_docker_does(short: str, whole: str) -> None:
    assert qualified(short) == whole


@pytest.mark.parametrize(
    "reference",
    [
        *("debian", "debian:12", "some/thing", "quay.io/some/thing:1.2_3-x", "localhost:5000/a/b__c/d--e"),
        *("0123456789ab", f"sha256:{'0' * 64}", f"some/thing:1@sha256:{'a' * 64}", "HOST/thing"),
    ],
)
def test_what_can_name_an_image_is_taken(reference: str) -> None:
    check_reference(reference)


@pytest.mark.parametrize(
    "reference",
    [
        "",
        " ",
        "BAD IMAGE!",
        "Debian",
        "-x",
        "a//b",
        "a:",
        "a@b",
        "a/b:c:d",
        "https://host/image",
        "a\n",
        "_a",
    ],
)
def test_what_cant_name_an_image_is_wrong_usage(reference: str) -> None:
    with pytest.raises(UsageError, match="is not an image's reference"):
        check_reference(reference)
