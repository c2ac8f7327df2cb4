"""Installing node24 into running containers, against the engine's own copy of the same tree."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from capsule_build.engine.limits import configured_files, merged_configuration, needed_here
from capsule_build.runtime import Store, install, open_environment, uninstall
from capsule_build.runtime.process import run
from tests import images
from tests.targets import TAG, registry_of

from .figures import Figure, alternate

if TYPE_CHECKING:
    from capsule_build.runtime import Environment

    from .bench import Bench

_CONTAINERS = 20
_FOREVER = ("/bin/sh", "-c", "while :; do sleep 1000; done")


def measure(bench: Bench) -> list[Figure]:
    """One container against a copy; then twenty at once against one after another."""
    bundle = bench.folder / "node24-v1-glibc.tar.gz"
    data = bench.folder / "store"
    (data / "capsules").mkdir(parents=True)
    os.link(bench.bundle("glibc"), data / "capsules" / bundle.name)
    registry = registry_of(data / "capsules" / bundle.name)
    store = Store(data)
    tree = bench.tree("glibc")
    engine = bench.engine
    image = images.image(engine, "bare")

    with contextlib.ExitStack() as stack:
        needs = needed_here()
        if needs and engine.name == "podman":
            path = bench.folder / "containers.conf"
            home = bench.folder.home()
            path.write_text(merged_configuration(configured_files(home, root=os.geteuid() == 0), needs))
            os.environ["CONTAINERS_CONF"] = str(path)
            stack.callback(os.environ.pop, "CONTAINERS_CONF")

        # Podman would wait ten seconds for each.
        at_once_option = ["--time=0"] if engine.name == "podman" else []

        def start() -> Environment:
            name = f"capsule-bench-{uuid.uuid4().hex[:12]}"
            stack.callback(run, [engine.name, "rm", "--force", *at_once_option, name], check=False)
            made = ["--detach", "--network=none", f"--name={name}"]
            run([engine.name, "run", *made, image, *_FOREVER])
            return open_environment(f"{engine.name}:{name}")

        def put(environment: Environment) -> None:
            install(TAG, environment, registry=registry, store=store)

        one, other = start(), start()
        name = other.name.partition(":")[2]
        other.run(["/bin/sh", "-c", "mkdir -p /tmp/copy"])

        def installed() -> None:
            put(one)
            uninstall(TAG, one, registry=registry)

        def copied() -> None:
            run([engine.name, "cp", f"{tree}/.", f"{name}:/tmp/copy"])
            other.run(["/bin/sh", "-c", "sync; rm -rf /tmp/copy/*"])

        ours, theirs = alternate(bench.runs, installed, copied)
        serial = [start() for _ in range(_CONTAINERS)]
        began = time.perf_counter()
        for environment in serial:
            put(environment)
        after_another = time.perf_counter() - began
        parallel = [start() for _ in range(_CONTAINERS)]
        began = time.perf_counter()
        with ThreadPoolExecutor(_CONTAINERS) as pool:
            list(pool.map(put, parallel))
        at_once = time.perf_counter() - began
    return [
        Figure("install and remove in a container", ours, f"{engine.name} cp, sync, rm", theirs, "s"),
        Figure(f"{_CONTAINERS} containers at once", at_once, "one after another", after_another, "s"),
    ]
