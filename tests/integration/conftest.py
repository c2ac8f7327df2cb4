"""Real engines for tests, with their data in the tests' own folder and nothing of the user's touched.

Where an engine can't be had, its tests are skipped with the reason; with CAPSULE_REQUIRE_ENGINES=1, as in
`make test`, that is a failure instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.engine import Engine, select_engine
from capsule_build.runtime.errors import CapsuleError
from capsule_build.runtime.process import run
from tests import images
from tests.integration.capsules import Capsules
from tests.integration.pythons import PythonCapsules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SCRIPT = Path(__file__).parents[2] / "tools" / "engines.sh"
_KEPT_MB = 4000
"""What an engine may keep for the next run; one run leaves about half of that."""
_STORAGE = """[storage]
driver = "overlay"
graphroot = "{state}/podman/root"
runroot = "{state}/podman/run"
"""


@pytest.fixture(scope="session")
def docker_environment() -> Iterator[None]:
    """Set DOCKER_HOST to a daemon that answers: the one that is there, else a private one, shared by runs."""
    folder = images.state_folder() / "docker"
    folder.mkdir(exist_ok=True)
    with (images.state_folder() / "docker.users").open("w") as users, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(users, fcntl.LOCK_SH)
        try:
            started = run([str(_SCRIPT), "start-docker", str(folder)], timeout=120)
        except CapsuleError as error:
            _unavailable(f"Docker: {error}")
        patch.setenv("DOCKER_HOST", started.text.strip().removeprefix("DOCKER_HOST="))
        if str(folder) in started.text:
            _make_room("docker", folder / "data")
        try:
            yield
        finally:
            # The last of the test runs that use the daemon ends it.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                run([str(_SCRIPT), "stop-docker", str(folder)], timeout=60)


@pytest.fixture(scope="session")
def podman_environment() -> Iterator[None]:
    """Point Podman at storage of the tests' own."""
    state = images.state_folder()
    (state / "podman").mkdir(exist_ok=True)
    configuration = state / "podman" / "storage.conf"
    configuration.write_text(_STORAGE.format(state=state))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(configuration))
        _make_room("podman", state / "podman" / "root")
        yield


@pytest.fixture(scope="session")
def engine_environment(docker_environment: None, podman_environment: None) -> None:
    """Let programs that tests start find both engines."""


@pytest.fixture(scope="session")
def docker_engine(docker_environment: None) -> Iterator[Engine]:
    """A connection to Docker."""
    yield from _opened("docker")


@pytest.fixture(scope="session")
def podman_engine(podman_environment: None) -> Iterator[Engine]:
    """A connection to Podman."""
    yield from _opened("podman")


@pytest.fixture(scope="session", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    opened: Engine = request.getfixturevalue(f"{request.param}_engine")
    return opened


@pytest.fixture(scope="session")
def image() -> Callable[[Engine, str], str]:
    """`image(engine, kind)`: the name of an image of a kind of `images.KINDS`, made where it isn't there."""
    return images.image


@pytest.fixture
def bare_image(engine: Engine) -> str:
    """The name of an image that holds one static shell, in the engine of `engine`."""
    return images.image(engine, "bare")


@pytest.fixture(scope="session")
def input_cache() -> Iterator[Path]:
    """Let programs that tests start keep inputs in the tests' own folder."""
    folder = images.state_folder() / "inputs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPSULE_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session")
def capsules(engine_environment: None, input_cache: Path) -> Iterator[Capsules]:
    """node24 capsules, built when they are first asked for."""
    with images.scratch("capsules-") as folder:
        yield Capsules(folder)


@pytest.fixture(scope="session")
def python_capsules(engine_environment: None, input_cache: Path) -> Iterator[PythonCapsules]:
    """Python capsules, built when they are first asked for."""
    with images.scratch("pythons-") as folder:
        yield PythonCapsules(folder)


def _make_room(engine: str, storage: Path) -> None:
    """Remove the layers of earlier builds where they have come to more than a run leaves."""
    used = run(["du", "--summarize", "--one-file-system", "--block-size=1M", str(storage)], check=False)
    if used.text and int(used.text.split()[0]) > _KEPT_MB:
        run([engine, "image", "prune", "--force"], check=False, timeout=300)


def _opened(name: str) -> Iterator[Engine]:
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(select_engine(name, say=print))
        except CapsuleError as error:
            _unavailable(f"{name}: {error}")
        yield opened


def _unavailable(reason: str) -> None:
    if os.environ.get("CAPSULE_REQUIRE_ENGINES") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
