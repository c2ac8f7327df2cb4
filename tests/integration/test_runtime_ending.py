"""What runs natively in a container and is given up, for its time or an interrupt, is ended there, too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.runtime import SetUpError, Store, open_environment, parse_harness, set_up
from capsule_build.runtime.process import run
from tests.integration.containers import podman_limits, running

if TYPE_CHECKING:
    from capsule_build.runtime import Environment
    from tests.integration.containers import Containers

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
CAPSULE = Path(sys.executable).with_name("capsule")
ONCE = {
    "entrypoint": "made",
    "install_command": "if [ ! -e /begun ]; then >/begun; (sleep 986; :) & sleep 987; fi;"
    r" printf '#!/bin/sh\necho works\n' >/bin/made && chmod +x /bin/made",
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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
@pytest.mark.parametrize("kind", ["bullseye", "musl"])
def test_what_is_interrupted_is_ended_in_the_container_and_the_next_one_succeeds(
    running: Containers, tmp_path: Path, kind: str, number: signal.Signals, code: int
) -> None:
    where = running.start(kind)
    environment = open_environment(where)
    environment.run(["/bin/sh", "-c", f"{OTHERS} >/dev/null 2>&1 &"])
    harness = tmp_path / "harness.json"
    harness.write_text(json.dumps(ONCE))
    words = [str(CAPSULE), "setup", str(harness), where, "--data-dir", str(tmp_path)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as one:
        deadline = time.monotonic() + 60
        while len(sleepers(environment)) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(sleepers(environment)) == 3
        # As a terminal does it: all of the group hear it.
        os.killpg(one.pid, number)
        printed, _ = one.communicate(timeout=60)
    assert (one.returncode, b"Traceback" in printed) == (code, False), printed
    assert sleepers(environment) == [OTHERS]
    again = run(words, timeout=120, check=False)
    assert again.code == 0, again.error_text
    assert environment.run([again.text.strip()]).text == "works\n"
