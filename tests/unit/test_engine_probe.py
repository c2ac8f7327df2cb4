"""Why an engine can't be used: each reason is an error of its own, told from what answers at the address."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingUnixStreamServer
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.engine import service
from capsule_build.engine.docker import DockerEngine
from capsule_build.engine.podman import PodmanEngine
from capsule_build.engine.protocol import (
    EngineDownError,
    EngineForbiddenError,
    EngineMissingError,
    EngineTooOldError,
    EngineUnfitError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def answering(path: Path, status: int, body: Any) -> Iterator[str]:
    """Answer each request at a Unix socket alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def address_string(self) -> str:
            return "local"

        def log_message(self, *_: object) -> None:
            return

    with ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            server.shutdown()
            thread.join()


def docker_version(**changes: Any) -> dict[str, Any]:
    return {"Version": "20.10.24", "ApiVersion": "1.41", "Components": [{"Name": "Engine"}], **changes}


def podman_info(number: str) -> dict[str, Any]:
    return {"version": {"Version": number, "APIVersion": number}, "host": {}, "store": {}}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_a_docker_that_answers_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(tmp_path / "s", 200, docker_version()) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        DockerEngine().close()


def test_a_docker_without_a_socket_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(EngineDownError, match="not running: there is no socket") as caught:
        DockerEngine()
    assert caught.value.exit_code == 4
    assert caught.value.hint


def test_a_socket_that_nobody_listens_at_is_a_docker_that_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(tmp_path / "s"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    with pytest.raises(EngineDownError, match="doesn't answer at"):
        DockerEngine()


def test_a_docker_that_is_not_installed_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr("capsule_build.engine.docker.DEFAULT_ADDRESS", f"unix://{tmp_path}/none")
    monkeypatch.setattr("capsule_build.engine.docker._settings", dict)
    with pytest.raises(EngineMissingError, match="Docker is not installed"):
        DockerEngine()


def test_a_socket_that_this_user_may_not_use_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
    monkeypatch.setattr("capsule_build.engine.docker.knock", refuse)
    with pytest.raises(EngineForbiddenError, match="may not use its socket") as caught:
        DockerEngine()
    assert "group" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (
            200,
            docker_version(ApiVersion="1.39", Version="18.09.1"),
            EngineTooOldError,
            "18.09.1.*too old.*1.39",
        ),
        (
            200,
            docker_version(Components=[{"Name": "Podman Engine"}]),
            EngineUnfitError,
            "is Podman, not Docker",
        ),
        (500, {"message": "broken"}, EngineDownError, "doesn't answer as Docker does"),
        (200, {}, EngineDownError, "doesn't answer as Docker does"),
        (200, [], EngineDownError, "doesn't answer as Docker does"),
    ],
)
def test_what_answers_in_dockers_place_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: Any, error: type[Exception], said: str
) -> None:
    with answering(tmp_path / "s", status, body) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        with pytest.raises(error, match=said):
            DockerEngine()


def test_dockers_current_context_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONTEXT", "elsewhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineUnfitError, match="context 'elsewhere' doesn't exist"):
        DockerEngine()


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (200, podman_info("3.0~rc1"), EngineTooOldError, "Podman 3.0~rc1"),
        (200, podman_info("3.4.4"), EngineTooOldError, "Podman 3.4.4.*too old: 4.0"),
        (200, {"ok": True}, EngineUnfitError, "isn't Podman"),
        (200, podman_info("unknown"), EngineUnfitError, "isn't Podman"),
        (500, {"cause": "broken", "message": "broken"}, EngineDownError, "doesn't answer: broken"),
        (404, {}, EngineDownError, "doesn't answer"),
    ],
)
def test_what_answers_in_podmans_place_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, body: Any, error: type[Exception], said: str
) -> None:
    with answering(tmp_path / "s", status, body) as address:
        monkeypatch.setenv("CONTAINER_HOST", address)
        with pytest.raises(error, match=said):
            PodmanEngine()


def test_a_podman_socket_that_this_user_may_not_use_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/s")
    monkeypatch.setattr("capsule_build.engine.podman.knock", refuse)
    with pytest.raises(EngineForbiddenError, match="may not use its socket"):
        PodmanEngine()


def test_a_podman_service_that_was_named_and_is_not_there_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/none")
    with pytest.raises(EngineDownError, match="doesn't answer") as caught:
        PodmanEngine()
    assert "CONTAINER_HOST" in (caught.value.hint or "")


def test_an_address_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTAINER_HOST", "gopher://x")
    with pytest.raises(EngineDownError, match="gopher"):
        PodmanEngine()


def test_a_podman_that_is_not_installed_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("capsule_build.engine.podman.running_service", lambda: None)
    with pytest.raises(EngineMissingError, match="Podman is not installed"):
        PodmanEngine()


def test_a_service_that_runs_will_do_where_podman_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with answering(tmp_path / "s", 200, podman_info("4.3.1")) as address:
        monkeypatch.setattr("capsule_build.engine.podman.running_service", lambda: address)
        engine = PodmanEngine()
        assert engine._address == address
        engine.close()


def test_a_service_that_ends_at_once_is_down_and_repeats_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "podman"
    fake.write_text("#!/bin/sh\necho 'Error: no such driver' >&2\nexit 125\n")
    fake.chmod(0o755)
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr(service, "needed_here", dict)
    monkeypatch.setattr(service, "_LONGEST_FOLDER", 1000)
    with pytest.raises(EngineDownError, match=r"ended with status 125:\nError: no such driver"):
        service.PodmanService()
    assert list((tmp_path / "t").iterdir()) == []


def test_a_machine_that_needs_runc_and_lacks_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(service, "needed_here", lambda: {"engine": {"runtime": "runc"}})
    with pytest.raises(EngineMissingError, match="runc is not installed"):
        service.service_environment(tmp_path)


def test_a_configuration_of_the_users_own_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "needed_here", lambda: {"containers": {"init": True}})
    monkeypatch.setenv("CONTAINERS_CONF", "/own.conf")
    assert service.service_environment(tmp_path)["CONTAINERS_CONF"] == "/own.conf"
    monkeypatch.delenv("CONTAINERS_CONF")
    given = service.service_environment(tmp_path)["CONTAINERS_CONF"]
    assert given == str(tmp_path / "containers.conf")
    assert "init = true" in (tmp_path / "containers.conf").read_text()
