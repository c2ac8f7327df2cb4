"""Which engine is taken, and how long Podman's service lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capsule_build.engine import Engine, select_engine
from capsule_build.runtime.health import _engine
from tests.integration.engines import eventually
from tests.integration.ground import processes_with

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_podmans_service_and_its_files_last_as_long_as_the_connection(podman_environment: None) -> None:
    with select_engine("podman", say=print) as opened:
        address = opened.info().address
        folder = Path(address.removeprefix("unix://")).parent
        assert processes_with(address)
        assert folder.stat().st_mode & 0o077 == 0
    assert eventually(lambda: not processes_with(address))
    assert not folder.exists()


def test_podmans_service_ends_when_its_caller_is_killed(podman_environment: None) -> None:
    script = (
        "import time\nfrom capsule_build.engine import select_engine\n"
        "with select_engine('podman', say=print) as engine:\n"
        "    print(engine.info().address, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        assert processes_with(address)
        child.kill()
    assert eventually(lambda: not processes_with(address))
    folder = Path(address.removeprefix("unix://")).parent
    os.utime(folder, (1, 1))
    with select_engine("podman", say=print):
        assert not folder.exists(), "the next run removes what a killed one left"


def test_an_explicit_choice_never_falls_back(
    podman_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    said: list[str] = []
    with (
        pytest.raises(Exception, match=r"daemon is not running: there is no socket /nowhere/docker.sock"),
        select_engine("docker", say=said.append),
    ):
        pass
    assert said == []
    # Both doctors say the same.
    told = _engine("docker")
    assert told.found == "Docker's daemon is not running: there is no socket /nowhere/docker.sock."
    assert told.status == "warn"
    with select_engine(None, say=said.append) as opened:
        assert opened.name == "podman"
    assert len(said) == 1
    assert "Docker" in said[0]
    assert said[0].endswith("Podman is used.")


def test_the_podman_socket_is_not_taken_for_docker(
    podman_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", podman_engine.info().address)
    with pytest.raises(Exception, match="is Podman, not Docker"), select_engine("docker", say=print):
        pass


def test_a_running_podman_service_is_used_where_container_host_names_it(
    podman_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = podman_engine.info().address
    monkeypatch.setenv("CONTAINER_HOST", address)
    with select_engine("podman", say=print) as opened:
        assert opened.info().address == address
    assert json.dumps(podman_engine.has_image("capsule-test/none:1")) == "false", "its own service goes on"
