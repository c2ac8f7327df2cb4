"""The runtime module, vendored, with the Podman of a user who isn't root."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime.process import run
from tests import images
from tests.integration.containers import FOREVER, Small, podman_limits, small
from tests.integration.test_runtime_crowds import busybox

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine
__all__ = ["busybox", "podman_limits", "small"]

ROOTLESS = """
import pathlib, sys
from vendored import Store, install, load_registry, open_environment, probe, uninstall, verify
folder = pathlib.Path(sys.argv[1])
registry, store = load_registry(folder / "lock.json"), Store(folder / "data")
environment = open_environment("podman:capsule-rootless")
done = install("node24-v1", environment, registry=registry, store=store)
print(probe(environment).user, environment.run([done.tools["node"]]).text.strip())
verify("node24-v1", environment, registry=registry, store=store)
print(uninstall("node24-v1", environment, registry=registry))
"""


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A home for a user without rights and without a name."""
    folder = Path(tempfile.mkdtemp(prefix="capsule-rootless-", dir="/var/tmp"))
    yield folder
    run(["rm", "-rf", str(folder)], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_rootless_podman(small: Small, nobody: Path, podman_environment: None) -> None:
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no Python outside root's home")
    shutil.copytree(Path(__file__).parents[2] / "capsule_build/runtime", nobody / "vendored")
    (nobody / "data/capsules").mkdir(parents=True)
    shutil.copy(small.bundle, nobody / "data/capsules")
    shutil.copy(images.root_tar("bare"), nobody / "bare.tar")
    (nobody / "lock.json").write_bytes(small.registry.to_bytes())
    (nobody / "use.py").write_text(ROOTLESS)
    (nobody / "storage.conf").write_text('[storage]\ndriver = "vfs"\n')
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(nobody),
        "XDG_RUNTIME_DIR": str(nobody / "run"),
        "CONTAINERS_STORAGE_CONF": str(nobody / "storage.conf"),
    }
    (nobody / "run").mkdir()
    if os.environ.get("CONTAINERS_CONF"):
        shutil.copy(os.environ["CONTAINERS_CONF"], nobody / "containers.conf")
        variables["CONTAINERS_CONF"] = str(nobody / "containers.conf")
    run(["chown", "-R", "54321:54321", str(nobody)])

    def as_nobody(*argv: str, check: bool = True) -> Any:
        user = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
        return run([*user, *argv], env=variables, cwd=nobody, timeout=120, check=check)

    tried = as_nobody("podman", "import", "bare.tar", "bare:1", check=False)
    if tried.code:
        pytest.skip(f"rootless Podman doesn't run here: {tried.error_text.strip()[-300:]}")
    made = ["--detach", "--network=none", "--name=capsule-rootless", "localhost/bare:1", *FOREVER]
    started = as_nobody("podman", "run", *made, check=False)
    try:
        if started.code:
            pytest.skip(f"rootless Podman runs no container here: {started.error_text.strip()[-300:]}")
        assert as_nobody(python, "use.py", str(nobody)).text == "0 node works\nTrue\n"
    finally:
        as_nobody("podman", "rm", "--force", "--time=0", "capsule-rootless", check=False)
        as_nobody("podman", "system", "reset", "--force", check=False)
