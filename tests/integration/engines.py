"""What tests of an engine do with it, and see of it."""

from __future__ import annotations

import tarfile
import time
from typing import TYPE_CHECKING, Any

from capsule_build.engine import LABEL, ContainerSpec, Engine, Outcome, container
from capsule_build.engine.docker import DockerEngine
from capsule_build.engine.podman import PodmanEngine
from tests import images

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUSYBOX = "/bin/busybox"
SECONDS = 60.0


def run_in(engine: Engine, image: str, *argv: str, timeout: float = SECONDS, **options: Any) -> Outcome:
    with container(engine, ContainerSpec(image=image, argv=argv, **options)) as made:
        return engine.start(made, timeout)


def write_context(folder: Path, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "busybox").write_bytes(_busybox())
    first = ["FROM scratch", f"LABEL {LABEL}=1", "COPY busybox /bin/busybox"]
    (folder / "Dockerfile").write_text("\n".join([*first, *lines]) + "\n")
    (folder / "busybox").chmod(0o755)
    return folder


def _busybox() -> bytes:
    with tarfile.open(images.root_tar("bare")) as archive:
        stream = archive.extractfile("bin/busybox")
        assert stream is not None
        return stream.read()


def build(engine: Engine, context: Path, **options: Any) -> tuple[str, list[str]]:
    lines: list[str] = []
    made = engine.build(context, **{"tag": None, "labels": {}, "on_line": lines.append, **options})
    return made, lines


def containers_of(engine: Engine) -> list[str]:
    """Every container of an engine, also those that a build works in."""
    if isinstance(engine, DockerEngine):
        return [item["Id"] for item in engine._client.containers(all=True)]
    assert isinstance(engine, PodmanEngine)
    listed = engine._api._client.api.get("/containers/json", params={"all": "true", "external": "true"})
    return [item["Id"] for item in listed.json()]


def eventually(fact: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def interfaces(table: str) -> set[str]:
    return {line.partition(":")[0].strip() for line in table.splitlines() if ":" in line}
