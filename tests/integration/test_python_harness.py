"""A project that one command installs, from this machine's package registries. Agents: test_agents.py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from capsule_build.runtime.process import run
from tests.integration.capsules import said
from tests.integration.pythons import PythonCapsules, PythonPlace

if TYPE_CHECKING:
    from tests.integration.pythons import Bind

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(1200)]

SETUP: Final = "/tmp/agentcompass-capsule-setups/of-test"
_NAMES: Final = ("/etc/resolv.conf", "/etc/hosts")
_INSTALL_SECONDS: Final = 900.0


@pytest.fixture(scope="module")
def registries() -> tuple[dict[str, str], tuple[Bind, ...]]:
    """This machine's configuration of pip, npm and certificates: variables, and files for a container.

    Nothing is named here: whatever files the configuration itself names are bound at their own paths.
    """
    names = (
        "PIP_",
        "NPM_CONFIG_",
        "npm_config_",
        "SSL_CERT_",
        "UV_",
        "NODE_EXTRA_CA",
        "http_proxy",
        "https_proxy",
    )
    variables = {name: value for name, value in os.environ.items() if name.startswith(names)}
    listed = run(["python3", "-m", "pip", "config", "list"]).text
    words = [
        word.removeprefix("file://")
        for word in (listed.replace("'", " ") + " ".join(variables.values())).split()
    ]
    mentioned = {word for word in words if word.startswith("/") and Path(word).exists()}
    found = run(["python3", "-m", "pip", "config", "debug"]).text
    files = [line.split(",")[0].strip() for line in found.splitlines() if "exists: True" in line]
    certificates = ["/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates"]
    paths = sorted({*mentioned, *files, *_NAMES, *certificates})
    # What lies in a folder that is bound anyhow needs no bind of its own.
    kept = [
        path for path in paths if not any(path != other and path.startswith(f"{other}/") for other in paths)
    ]
    binds = tuple((path, path, "ro") for path in kept if Path(path).exists() and not path.startswith("/root"))
    return variables, binds  # type: ignore[return-value]  # "ro" is one of the two


def test_one_command_installs_a_project_that_needs_uv_python_and_npx(
    request: pytest.FixtureRequest,
    python_capsules: PythonCapsules,
    registries: tuple[dict[str, str], tuple[Bind, ...]],
    tmp_path: Path,
) -> None:
    variables, binds = registries
    where = _place(request, python_capsules, "both", "podman", "bullseye")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mixed"\nversion = "1.0"\n'
        'requires-python = ">=3.12"\ndependencies = ["markupsafe"]\n'
    )
    # `uv sync` makes the project's own environment; `npx` runs a package that nobody installed.
    command = (
        "cp -r /project /tmp/project && cd /tmp/project && uv sync --no-install-project && "
        "uv run --no-sync python -c 'import markupsafe._speedups' && "
        "npx --yes semver@7.7.2 --range '>=3.12' "
        "$(python -c 'import platform; print(platform.python_version())')"
    )
    outcome = where.run(
        *("{root}/bin/capsule-exec", "--setup-root", SETUP, "--", "/bin/sh", "-c", command),
        env=variables,
        network="host",
        binds=(*binds, (str(tmp_path), "/project", "ro")),
        timeout=_INSTALL_SECONDS,
    )
    assert outcome.code == 0, said(outcome)[-4000:]
    assert outcome.stdout.decode().split()[-1] == where.made.python


def _place(
    request: pytest.FixtureRequest, capsules: PythonCapsules, name: str, engine: str, kind: str
) -> PythonPlace:
    opened: Any = request.getfixturevalue(f"{engine}_engine")
    folder = request.getfixturevalue("tmp_path_factory").mktemp("programs")
    return PythonPlace(opened, kind, capsules.built(name).made, capsules.tree(name), folder)
