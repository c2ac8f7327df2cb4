"""What runs natively in a container and takes too long is ended there, and not only given up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import SetUpError, Store, open_environment, parse_harness, set_up
from tests.integration.test_runtime_containers import podman_limits, running

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.runtime import Environment
    from tests.integration.test_runtime_containers import Containers

pytestmark = pytest.mark.engine
__all__ = ["podman_limits", "running"]

OTHERS = "sleep 983"
INSTALLS = {"entrypoint": "none", "install_command": "(sleep 986; :) & sleep 987; :", "install_timeout": 2}
CHECKS = {
    "entrypoint": "hangs",
    "install_command": r"printf '#!/bin/sh\nsleep 984 & sleep 985; :\n' >/bin/hangs && chmod +x /bin/hangs",
    "check_command": ["hangs"],
    "check_timeout": 2,
}


def sleepers(environment: Environment) -> list[str]:
    """Which `sleep` commands run in a container."""
    script = "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$one; echo; done 2>/dev/null"
    lines = environment.run(["/bin/sh", "-c", script]).text.splitlines()
    assert any("tr" in line or "/bin/sh" in line for line in lines)
    return [line.strip() for line in lines if line.startswith("sleep 98")]


@pytest.mark.parametrize("document", [INSTALLS, CHECKS], ids=["install", "check"])
@pytest.mark.parametrize("kind", ["bullseye", "musl"])
def test_what_takes_too_long_is_ended_in_the_container(
    running: Containers, tmp_path: Path, kind: str, document: dict[str, object]
) -> None:
    environment = open_environment(running.start(kind))
    environment.run(["/bin/sh", "-c", f"{OTHERS} >/dev/null 2>&1 &"])
    begun = time.monotonic()
    with pytest.raises(SetUpError, match="didn't end within 2 s"):
        set_up(parse_harness(document), environment, registry=None, store=Store(tmp_path))
    assert time.monotonic() - begun < 60
    # Others' go on.
    assert sleepers(environment) == [OTHERS]
