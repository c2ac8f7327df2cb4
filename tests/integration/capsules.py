"""node24 capsules for tests: built by the project's own command line, once for each engine and libc.

What engines cache, and the inputs, stay in the tests' own folder; bundles don't, so that each run
tests what this checkout makes.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from capsule_build.engine import ContainerSpec, Engine, Outcome, container
from capsule_build.engine.docker import DockerEngine
from capsule_build.runtime.archive import extract_bundle
from capsule_build.runtime.process import Result, run

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGINES: Final = ("docker", "podman")
LIBCS: Final = ("glibc", "musl")
NODE: Final = "24.19.0"
NPM: Final = "11.17.0"

COMMAND: Final = Path(sys.executable).with_name("capsule-build")
"""The console script, as a user starts it."""

BUILD_SECONDS: Final = 900.0
RUN_SECONDS: Final = 120.0


def platform(libc: str) -> str:
    """Return the platform of capsules that this machine can build."""
    return f"linux-{os.uname().machine}-{libc}"


def install_root(libc: str) -> str:
    """Return where DESIGN says that a node24 capsule lies."""
    return f"/tmp/agentcompass-capsules/node24-{NODE}-{platform(libc)}"


def cli(
    *arguments: str | Path,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    command: Path = COMMAND,
    timeout: float = BUILD_SECONDS,
) -> Result:
    """Run `capsule-build`, whatever its exit code is.

    Args:
        arguments: Its arguments.
        env: Changes to the environment; None takes a variable away.
        cwd: The working folder.
        command: The command, where another installation's is meant.
        timeout: Seconds.
    """
    return run(
        [str(command), *map(str, arguments)],
        env=changed_environment(env or {}),
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


def changed_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """Return this process's environment with changes; None takes a variable away."""
    merged = {**os.environ, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def cli_json(*arguments: str | Path, **options: Any) -> Any:
    """Run `capsule-build ... --json`, which must succeed, and return what it printed."""
    result = cli(*arguments, "--json", **options)
    assert result.code == 0, result.error_text
    return json.loads(result.stdout)


@dataclass(frozen=True)
class Capsule:
    """A bundle that was built: its file, its digest, and what the command printed of it."""

    engine: str
    libc: str
    path: Path
    sha256: str
    said: Mapping[str, Any]

    @property
    def root(self) -> str:
        """Its install root."""
        return install_root(self.libc)

    @property
    def record(self) -> Any:
        """Its build record."""
        return json.loads(self.path.with_name(self.path.name + ".build.json").read_bytes())


class Capsules:
    """Builds capsules when they are first asked for, and keeps them for the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[tuple[str, str], Capsule] = {}
        self._trees: dict[str, Path] = {}

    def built(self, engine: str, libc: str) -> Capsule:
        """Return the capsule that an engine builds for a libc."""
        key = (engine, libc)
        if key not in self._built:
            dist = self._folder / engine
            dist.mkdir(exist_ok=True)
            path = dist / f"node24-v1-{platform(libc)}.tar.gz"
            # A pin that vanished is the business of the one test that looks at overrides.
            options = ("--libc", libc, "--container-cli", engine, "--newer-pins")
            (said,) = cli_json("node24", path, *options)["bundles"]
            self._built[key] = Capsule(engine, libc, path, said["sha256"], said)
        return self._built[key]

    def tree(self, libc: str) -> Path:
        """Return Podman's capsule for a libc, unpacked; tests that write to it take a copy."""
        if libc not in self._trees:
            tree = self._folder / f"tree-{libc}"
            extract_bundle(self.built("podman", libc).path, tree)
            self._trees[libc] = tree
        return self._trees[libc]


def run_in(engine: Engine, image: str, *argv: str, timeout: float = RUN_SECONDS, **options: Any) -> Outcome:
    """Run a program in a new container and return what it left (see `ContainerSpec` for the options)."""
    with container(engine, ContainerSpec(image=image, argv=argv, **options)) as made:
        return engine.start(made, timeout)


def said(outcome: Outcome) -> str:
    """Return a container's output, to be shown when an assertion fails."""
    return (outcome.stdout + outcome.stderr).decode("utf-8", "backslashreplace")


def printed_json(outcome: Outcome) -> Any:
    """Return what a container's program printed as JSON; it must have succeeded."""
    assert outcome.code == 0, said(outcome)
    return json.loads(outcome.stdout)


def containers_of(engine: Engine) -> set[str]:
    """Return every container of an engine, also those that a build works in."""
    if isinstance(engine, DockerEngine):
        return {item["Id"] for item in engine._client.containers(all=True)}
    return set(run(["podman", "ps", "--all", "--external", "--no-trunc", "--quiet"]).text.split())


def configured_environment(engine: Engine, image: str) -> list[str]:
    """Return the variables that an image's own configuration sets, as NAME=VALUE."""
    if isinstance(engine, DockerEngine):
        described: Any = engine._client.inspect_image(image)  # type: ignore[no-untyped-call]  # so in the stubs
    else:
        (described,) = json.loads(run(["podman", "image", "inspect", image]).stdout)
    return list(described["Config"].get("Env") or [])
