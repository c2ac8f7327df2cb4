"""Running containers, a small bundle to install into them, and what Podman needs on this machine.

`running` and `small` are fixtures, and `podman_limits` one for all tests of a module that imports it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.engine.limits import configured_files, merged_configuration, needed_here
from capsule_build.runtime import install, uninstall, verify
from capsule_build.runtime.process import run
from tests import images
from tests.targets import TAG, megabyte, registry_of, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule_build.engine import Engine
    from capsule_build.runtime import Environment

FOREVER = ("/bin/sh", "-c", "while :; do sleep 1000; done")


@pytest.fixture(autouse=True, scope="module")
def podman_limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What Podman's command line has to be told on this machine; the runtime leaves the user's alone."""
    needs = needed_here()
    with pytest.MonkeyPatch.context() as patch:
        if needs:
            path = tmp_path_factory.mktemp("podman") / "containers.conf"
            files = configured_files(Path.home(), root=os.geteuid() == 0)
            path.write_text(merged_configuration(files, needs))
            patch.setenv("CONTAINERS_CONF", str(path))
        yield


class Containers:
    """Starts containers and knows which engine they are in."""

    def __init__(self, engine: Engine, stack: contextlib.ExitStack) -> None:
        self.engine = engine
        self._stack = stack

    def start(self, kind: str, *options: str, command: tuple[str, ...] = FOREVER) -> str:
        """Start a container of an image, or of one of `images.KINDS`; return its environment's short name."""
        name = f"capsule-runtime-{uuid.uuid4().hex[:12]}"
        image = kind if "/" in kind else images.image(self.engine, kind)
        self._stack.callback(self.remove, name)
        run(
            [
                self.engine.name,
                "run",
                "--detach",
                "--network=none",
                f"--name={name}",
                *options,
                image,
                *command,
            ],
            timeout=120,
        )
        return f"{self.engine.name}:{name}"

    def remove(self, name: str) -> None:
        """Remove a container at once: its shell hears no SIGTERM, and Podman would wait ten seconds."""
        self.ask("rm", "--force", *([] if self.engine.name == "docker" else ["--time=0"]), name)

    def ask(self, *arguments: str) -> None:
        run([self.engine.name, *arguments], check=False, timeout=120)


@pytest.fixture
def running(engine: Engine) -> Iterator[Containers]:
    with contextlib.ExitStack() as stack:
        yield Containers(engine, stack)


class Small:
    """A bundle of 1 MB for a libc, the store that holds it, and the registry lock."""

    def __init__(self, folder: Path, libc: str, program: Path) -> None:
        self.store, self.bundle = stored(folder, megabyte(libc, program).data())
        self.registry = registry_of(self.bundle)

    def install(self, environment: Environment, **options: Any) -> Any:
        return install(TAG, environment, registry=self.registry, store=self.store, **options)

    def cycle(self, environment: Environment) -> None:
        """Install, run, verify, uninstall."""
        done = self.install(environment)
        assert done.is_new
        said = environment.run([done.tools["node"]])
        assert said.stdout == b"node works\n", said
        assert verify(TAG, environment, registry=self.registry, store=self.store).root == done.root
        assert not self.install(environment).is_new
        assert uninstall(TAG, environment, registry=self.registry)
        # The image is as it was.
        left = environment.run(["/bin/sh", "-c", "for one in /tmp/agentcompass-*; do echo $one; done"])
        assert left.text == "/tmp/agentcompass-*\n"


@pytest.fixture
def small(tmp_path: Path, busybox: Path) -> Small:
    return Small(tmp_path, "glibc", busybox)


def entries(environment: Environment) -> list[str]:
    script = (
        "PATH=/usr/bin:/bin; for one in /tmp/agentcompass-capsules/* /tmp/agentcompass-capsules/.[!.]*; do "
    )
    script += 'if [ -e "$one" ]; then echo "${one##*/}"; fi; done'
    return environment.run(["/bin/sh", "-c", script]).text.split()
