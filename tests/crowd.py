"""Many processes that want the same at once, some of which are killed: `python -m tests.crowd SPEC.json`.

A process of its own, so that forking starts from a small program without threads. The specification names the
registry lock, the data folder and the environment; each round ends with a check of what is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsule_build.runtime import (
    Downloader,
    Store,
    install,
    installed,
    load_registry,
    open_environment,
    uninstall,
    verify,
)
from tests.targets import TAG, Rerooted

if TYPE_CHECKING:
    from collections.abc import Callable

    from capsule_build.runtime import Environment, Registry

PROCESSES = 20


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_bytes())
    crowd = Crowd(spec)
    told = crowd.store_rounds() if spec["kind"] == "store" else crowd.install_rounds()
    sys.stdout.write(json.dumps(told) + "\n")


class Crowd:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.registry: Registry = load_registry(Path(spec["registry"]))
        self.random = random.Random(spec["seed"])
        self.told = {"rounds": 0, "killed": 0, "ended": 0, "there_after_kills": 0}

    def environment(self) -> Environment:
        if "root" in self.spec:
            return Rerooted(Path(self.spec["root"]))
        return open_environment(self.spec["environment"])

    def store(self) -> Store:
        return Store(Path(self.spec["data"]), downloader=Downloader(timeout=0.5, rounds=8, pause=0.02))

    def install(self) -> None:
        install(TAG, self.environment(), registry=self.registry, store=self.store())

    def install_rounds(self) -> dict[str, int]:
        for _ in range(self.spec["rounds"]):
            self.crowd(self.install)
            environment = self.environment()
            # Whatever happened: what looks installed is whole.
            if installed(TAG, environment, registry=self.registry) is not None:
                self.told["there_after_kills"] += 1
                verify(TAG, environment, registry=self.registry, store=self.store())
            self.install()
            verify(TAG, environment, registry=self.registry, store=self.store())
            entries = environment.run(["/bin/sh", "-c", "ls -A /tmp/agentcompass-capsules"]).text.split()
            assert len(entries) == 2, f"more than one root and its mark: {entries}"
            assert uninstall(TAG, environment, registry=self.registry)
            entries = environment.run(["/bin/sh", "-c", "ls -A /tmp/agentcompass-capsules"]).text.split()
            assert entries == [], f"left: {entries}"
        return self.told

    def store_rounds(self) -> dict[str, int]:
        (variant,) = self.registry.capsule(TAG).variants
        resolved = self.registry.resolve(TAG, variant)
        path = self.store().path(resolved.variant)
        for _ in range(self.spec["rounds"]):
            self.crowd(lambda: self.store().get(resolved))
            if path.exists():
                self.told["there_after_kills"] += 1
            self.store().get(resolved)
            assert sorted(item.name for item in path.parent.iterdir()) == [path.name]
            path.unlink()
        return self.told

    def crowd(self, work: Callable[[], object]) -> None:
        """Have many processes do something at once; kill half of them, each at a random moment."""
        children: dict[int, float | None] = {}
        begun = time.monotonic()
        for _ in range(PROCESSES):
            moment = begun + self.random.uniform(0, self.spec["seconds"])
            dies = moment if self.random.random() < 0.5 else None
            child = os.fork()
            if not child:
                code = 1
                try:
                    os.setpgid(0, 0)
                    work()
                    code = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(code)
            # Both sides do it: whichever comes first.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.setpgid(child, child)
            children[child] = dies
        failures = []
        while children:
            for child, dies in list(children.items()):
                pid, status = os.waitpid(child, os.WNOHANG)
                if pid:
                    del children[child]
                    if os.WIFSIGNALED(status):
                        self.told["killed"] += 1
                    else:
                        self.told["ended"] += 1
                        if status:
                            failures.append(child)
                elif dies is not None and time.monotonic() > dies:
                    # With what it started, as when a container of the controller is ended, or without.
                    (os.killpg if self.random.random() < 0.5 else os.kill)(child, signal.SIGKILL)
                    children[child] = None
            time.sleep(0.002)
        self.told["rounds"] += 1
        assert not failures, f"{len(failures)} processes that nobody killed failed"


if __name__ == "__main__":
    main()
