"""A real package, installed by a capsule in an image that holds one static shell, then sealed and run."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from capsule_build.runtime.files import sha256_file
from capsule_build.runtime.process import run
from tests import images
from tests.integration.capsules import run_in, said

if TYPE_CHECKING:
    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsule, Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

Bind = tuple[str, str, Literal["ro", "rw"]]

PACKAGE: Final = "semver"
VERSION: Final = "7.7.2"
SETUPS: Final = "/tmp/agentcompass-capsule-setups"
PASSED_ON: Final = ("npm_config_", "http_proxy", "https_proxy", "no_proxy")


def registry_access() -> tuple[dict[str, str], tuple[Bind, ...]]:
    """Return the variables and files by which this machine's npm configuration counts in a container too."""
    environment = {name: value for name, value in os.environ.items() if name.lower().startswith(PASSED_ON)}
    binds: list[Bind] = []
    certificates = [
        *(os.environ.get(name, "") for name in ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")),
        "/etc/ssl/certs/ca-certificates.crt",
    ]
    candidates = (
        ("npm_config_userconfig", [str(Path.home() / ".npmrc")]),
        ("npm_config_globalconfig", ["/etc/npmrc"]),
        ("NODE_EXTRA_CA_CERTS", certificates),
    )
    for variable, paths in candidates:
        found = next((path for path in paths if path and Path(path).is_file()), None)
        if found is not None:
            binds.append((str(Path(found).resolve()), f"/host/{variable}", "ro"))
            environment[variable] = f"/host/{variable}"
    return environment, tuple(binds)


def fingerprint(tree: Path) -> dict[str, tuple[Any, ...]]:
    """Return all that can be seen of every file and folder of a tree."""
    found: dict[str, tuple[Any, ...]] = {}
    for folder, folders, files in os.walk(tree):
        for name in (".", *folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            content = ""
            if stat.S_ISREG(status.st_mode):
                content = sha256_file(path)
            elif stat.S_ISLNK(status.st_mode):
                content = str(path.readlink())
            found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
    return found


class SetUp:
    """A container image with a writable capsule and setup roots, which stay when a container goes."""

    def __init__(self, engine: Engine, capsule: Capsule, tree: Path, folder: Path) -> None:
        self._engine = engine
        self._image = images.image(engine, "bare")
        self.capsule = capsule
        self.tree = folder / "capsule"
        run(["cp", "-a", "--reflink=auto", str(tree), str(self.tree)])
        self.setups = folder / "setups"
        self.setups.mkdir()
        self.root = f"{SETUPS}/{capsule.sha256}"
        self._environment, files = registry_access()
        self._binds: tuple[Bind, ...] = (
            (str(self.tree), capsule.root, "rw"),
            (str(self.setups), SETUPS, "rw"),
            *files,
        )

    @property
    def installed(self) -> Path:
        """The setup root, as this machine sees it."""
        return self.setups / self.capsule.sha256

    def run(self, *argv: str, env: dict[str, str] | None = None, **options: Any) -> str:
        """Run a program as root in a new container; it must succeed. Return its standard output."""
        environment = {**self._environment, **(env or {})}
        outcome = run_in(
            self._engine, self._image, *argv, env=environment, binds=self._binds, timeout=300, **options
        )
        assert outcome.code == 0, said(outcome)
        return outcome.stdout.decode()


@pytest.fixture(params=["podman-musl", "docker-glibc"])
def set_up(request: pytest.FixtureRequest, capsules: Capsules, tmp_path: Path) -> SetUp:
    name, libc = request.param.split("-")
    opened: Engine = request.getfixturevalue(f"{name}_engine")
    return SetUp(opened, capsules.built("podman", libc), capsules.tree(libc), tmp_path)


def test_a_package_lands_in_the_setup_root_and_runs_without_the_capsule_on_path(set_up: SetUp) -> None:
    root, setup_root = set_up.capsule.root, set_up.root
    launcher, sealer = f"{root}/bin/capsule-exec", f"{root}/bin/seal-tree"
    program = f"{setup_root}/bin/{PACKAGE}"
    before = fingerprint(set_up.tree)

    install = ("npm", "install", "-g", f"{PACKAGE}@{VERSION}")
    set_up.run(launcher, "--setup-root", setup_root, *install, network="host")

    assert fingerprint(set_up.tree) == before
    package = set_up.installed / "lib/node_modules" / PACKAGE / "package.json"
    assert json.loads(package.read_bytes())["version"] == VERSION
    script = (set_up.installed / "bin" / PACKAGE).resolve()
    assert script.read_bytes().startswith(b"#!/usr/bin/env node\n")
    body = script.read_bytes().partition(b"\n")[2]
    assert [path.name for path in set_up.setups.iterdir()] == [set_up.installed.name]

    # The image has no /usr/bin/env: it is sealing that makes the command run.
    unsealed = (f"{root}/libexec/bash", "-c", '"$0" 1.2.3; echo "status $?"', program)
    assert set_up.run(*unsealed, env={"PATH": "/nonexistent"}) == "status 127\n"
    report = json.loads(set_up.run(sealer, "--json", setup_root))
    assert report["failures"] == []
    first, _, rest = script.read_bytes().partition(b"\n")
    assert first.startswith(f"#!{root}/".encode())
    assert rest == body

    bumped = set_up.run(program, "1.2.3", "--increment", "minor", env={"PATH": "/nonexistent"})
    assert bumped == "1.3.0\n"
    assert fingerprint(set_up.tree) == before

    sealed = fingerprint(set_up.installed)
    set_up.run(sealer, "--json", setup_root)
    assert fingerprint(set_up.installed) == sealed
