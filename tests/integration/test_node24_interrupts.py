"""Ctrl-C at each stage of a build: it ends, says so, and leaves everything as it was."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from tests import images
from tests.integration.capsules import COMMAND, ENGINES, changed_environment
from tests.integration.ground import Ground, assert_said_once, processes_with
from tests.servers import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

SECONDS: Final = 180
TERMINATED: Final = 128 + signal.SIGTERM


class Running:
    """A `capsule-build` in a process group of its own, as a shell starts it."""

    def __init__(self, arguments: list[str], variables: Mapping[str, str | None]) -> None:
        self.process = subprocess.Popen(
            [str(COMMAND), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=changed_environment(variables),
            start_new_session=True,
            text=True,
            errors="backslashreplace",
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def await_line(self, start: str) -> None:
        """Wait until a line is printed that starts so, leading spaces aside."""
        with self._news:
            came = self._news.wait_for(
                lambda: any(line.lstrip().startswith(start) for line in self.lines) or not self._reads(),
                timeout=SECONDS,
            )
        assert came, self.lines
        assert self.process.poll() is None, self.lines

    def await_fact(self, fact: Callable[[], object]) -> None:
        """Wait until something holds that no line tells of."""
        end = time.monotonic() + SECONDS
        while not fact():
            assert time.monotonic() < end, self.lines
            assert self.process.poll() is None, self.lines
            time.sleep(0.002)

    def _reads(self) -> bool:
        return self._reader.is_alive()

    def end(self, how: signal.Signals) -> int:
        """End it as a terminal does (its whole group), or as a service manager does; return its status."""
        if how == signal.SIGINT:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        try:
            return self.process.wait(SECONDS)
        finally:
            self._reader.join(SECONDS)

    def kill(self) -> None:
        """See to it that nothing of it is left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def make_ground(
    request: pytest.FixtureRequest, capsules: Capsules, input_cache: Path
) -> Iterator[Callable[[str], Ground]]:
    """`make_ground(engine)`: an engine that has the layers of the musl capsule, and a previous bundle."""
    with images.scratch("ground-") as folder:

        def make(engine_name: str) -> Ground:
            engine: Engine = request.getfixturevalue(f"{engine_name}_engine")
            capsules.built(engine_name, "musl")
            return Ground(folder, input_cache, engine)

        yield make


@contextlib.contextmanager
def running(ground: Ground, variables: Mapping[str, str | None] | None = None) -> Iterator[Running]:
    """A build that is going on."""
    build = Running(ground.arguments(), {**ground.variables, **(variables or {})})
    try:
        yield build
    finally:
        build.kill()


def assert_interrupted(build: Running, ground: Ground) -> None:
    """Interrupt a build and fail unless it ends as it should."""
    code = build.end(signal.SIGINT)
    assert code == 130, build.lines
    assert_said_once(build.lines, "Interrupted")
    assert build.lines[-1].startswith("Interrupted")
    assert not [line for line in build.lines if "error:" in line or "Traceback" in line]
    ground.assert_untouched()


def test_ctrl_c_while_fetching(make_ground: Callable[[str], Ground]) -> None:
    ground = make_ground("docker")
    digest = ground.digest_of("zlib1g")
    place = ground.cache / "sha256" / digest
    half = place.read_bytes()[: place.stat().st_size // 2]
    place.unlink()
    sent, over = threading.Event(), threading.Event()

    def stop_half_way(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(2 * len(half)))
        request.end_headers()
        request.wfile.write(half)
        request.wfile.flush()
        sent.set()
        over.wait(SECONDS)

    with serve() as mirror:
        mirror.answers[f"/sha256/{digest}"] = stop_half_way
        try:
            with running(ground, {"CAPSULE_SOURCE_MIRROR": mirror.url}) as build:
                build.await_fact(sent.is_set)
                build.await_fact(lambda: any(path.is_file() for path in ground.staged()))
                assert_interrupted(build, ground)
        finally:
            over.set()
    assert not place.exists()


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_while_the_engine_builds(make_ground: Callable[[str], Ground], engine: str) -> None:
    ground = make_ground(engine)
    marker = f"step-{uuid.uuid4().hex}"
    ground.add_step(f"exec sh -c 'sleep 600; :' {marker}")
    ground.add_step("echo never")
    with running(ground) as build:
        build.await_fact(lambda: processes_with(marker))
        assert_interrupted(build, ground)
        assert processes_with(marker) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_while_the_tree_is_copied_out(make_ground: Callable[[str], Ground], engine: str) -> None:
    ground = make_ground(engine)
    with running(ground) as build:
        build.await_fact(lambda: any((ground.cache / "staging").glob("*/tree/*/*")))
        assert not [line for line in build.lines if line.startswith("Pack")]
        assert_interrupted(build, ground)


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_while_packing(make_ground: Callable[[str], Ground], engine: str) -> None:
    ground = make_ground(engine)
    with running(ground) as build:
        build.await_line("Pack")
        build.await_fact(lambda: any(path.stat().st_size for path in ground.dist.glob(".*.part")))
        assert_interrupted(build, ground)


@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_while_the_smoke_test_runs(make_ground: Callable[[str], Ground], engine: str) -> None:
    ground = make_ground(engine)
    marker = f"smoke-{uuid.uuid4().hex}"
    ground.change(
        "node24.toml",
        'tool = "node"\narguments = ["--version"]',
        f'tool = "node"\narguments = ["-e", "setInterval(() => {{}}, 1000)", "{marker}"]',
    )
    with running(ground) as build:
        build.await_line("Smoke")
        build.await_fact(lambda: processes_with(marker))
        assert_interrupted(build, ground)
        assert processes_with(marker) == []


def test_a_service_manager_ends_a_build_as_cleanly(make_ground: Callable[[str], Ground]) -> None:
    ground = make_ground("podman")
    marker = f"step-{uuid.uuid4().hex}"
    ground.add_step(f"exec sh -c 'sleep 600; :' {marker}")
    with running(ground) as build:
        build.await_fact(lambda: processes_with(marker))
        assert build.end(signal.SIGTERM) == TERMINATED
        assert not [line for line in build.lines if "error:" in line or "Traceback" in line]
        assert processes_with(marker) == []
        ground.assert_untouched()
