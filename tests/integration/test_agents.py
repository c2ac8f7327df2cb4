"""Real coding agents, installed by a capsule, sealed, and started by their absolute path.

`make test` runs a diagonal of images and agents, `make matrix` all cells; then the table in docs/agents.md is
written anew. One npm cache serves all cells, between runs too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from capsule_build.runtime.files import write_atomically
from tests import images
from tests.integration.capsules import run_in, said
from tests.integration.decoys import write_decoys
from tests.integration.test_node24_setup import SETUPS, registry_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

Bind = tuple[str, str, Literal["ro", "rw"]]

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "agents.md"
MARK: Final = "<!-- written by make matrix -->\n"
LIFECYCLE: Final = {
    "npm_config_ignore_scripts": "false",
    "npm_config_dangerously_allow_all_scripts": "true",
    "npm_config_strict_allow_scripts": "false",
}
PLACES: Final = (
    ("bare", "musl"),
    ("bare", "glibc"),
    ("bullseye", "glibc"),
    ("trixie", "glibc"),
    ("musl", "musl"),
)
# What a program that the image's own loader loads may find in LD_LIBRARY_PATH without taking harm.
HARMLESS: Final = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")


@dataclass(frozen=True)
class Agent:
    """An agent: its package, its pinned version, its command, and what that prints."""

    command: str
    package: str
    version: str
    says: str


CLAUDE: Final = Agent("claude", "@anthropic-ai/claude-code", "2.1.332", "2.1.332 (Claude Code)")
CODEX: Final = Agent("codex", "@openai/codex", "0.171.0", "codex-cli 0.171.0")
DIAGONAL: Final = {
    ("bare", "musl", CLAUDE),
    ("bullseye", "glibc", CLAUDE),
    ("trixie", "glibc", CODEX),
    ("musl", "musl", CODEX),
}


def _cells() -> list[Any]:
    cells = []
    for kind, libc in PLACES:
        for agent in (CLAUDE, CODEX):
            marks = () if (kind, libc, agent) in DIAGONAL else (pytest.mark.matrix,)
            cells.append(pytest.param(kind, libc, agent, marks=marks, id=f"{kind}-{libc}-{agent.command}"))
    return cells


@pytest.fixture(scope="session")
def rows() -> Iterator[dict[tuple[str, str, str], str]]:
    """Collect what each cell found; when all are there the document's table is written."""
    found: dict[tuple[str, str, str], str] = {}
    yield found
    if len(found) == 2 * len(PLACES):
        lines = [
            "| image | capsule | agent | sealed | what became of its program |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [f"| {kind} | {libc} | {agent} | {what} |" for (kind, libc, agent), what in found.items()]
        head = DOCUMENT.read_text().partition(MARK)[0]
        write_atomically(DOCUMENT, (head + MARK + "\n".join(lines) + "\n").encode())


class Place:
    """An image with a capsule and a setup root, whose npm cache is shared."""

    def __init__(self, engine: Engine, kind: str, capsules: Capsules, libc: str, folder: Path) -> None:
        self._engine = engine
        self._image = images.image(engine, kind)
        capsule = capsules.built("podman", libc)
        self.capsule_root = capsule.root
        self.root = f"{SETUPS}/{capsule.sha256}"
        self.decoys = folder / "decoys"
        cache = images.state_folder() / "npm-cache"
        for path in (folder / "setups", self.decoys, cache):
            path.mkdir(exist_ok=True)
        self._environment, files = registry_access()
        self._binds: tuple[Bind, ...] = (
            (str(capsules.tree(libc)), capsule.root, "ro"),
            (str(folder / "setups"), SETUPS, "rw"),
            # Outside of the setup root, so that a cell seals what it installed and nothing else.
            (str(cache), "/npm-cache", "rw"),
            (str(self.decoys), "/decoys", "ro"),
            *files,
        )

    def run(
        self, *argv: str, env: dict[str, str], network: Literal["none", "host"] = "none", code: int = 0
    ) -> str:
        outcome = run_in(
            self._engine, self._image, *argv, env=env, binds=self._binds, network=network, timeout=600
        )
        assert outcome.code == code, said(outcome)
        return outcome.stdout.decode()

    def install(self, agent: Agent, scripts: dict[str, str]) -> None:
        launcher = f"{self.capsule_root}/bin/capsule-exec"
        npm = (
            "npm",
            "install",
            "-g",
            "--cache=/npm-cache",
            "--prefer-offline",
            f"{agent.package}@{agent.version}",
        )
        environment = {**self._environment, **scripts, "HOME": "/tmp"}
        self.run(launcher, "--setup-root", self.root, *npm, env=environment, network="host")

    def seal(self) -> Any:
        return json.loads(self.run(f"{self.capsule_root}/bin/seal-tree", "--json", self.root, env={}))


@pytest.fixture
def place(podman_engine: Engine, capsules: Capsules, tmp_path: Path) -> Callable[[str, str], Place]:
    return lambda kind, libc: Place(podman_engine, kind, capsules, libc, tmp_path)


@pytest.mark.parametrize(("kind", "libc", "agent"), _cells())
def test_an_agent_runs_by_its_path_alone(
    place: Callable[[str, str], Place],
    kind: str,
    libc: str,
    agent: Agent,
    rows: dict[tuple[str, str, str], str],
) -> None:
    here = place(kind, libc)
    here.install(agent, LIFECYCLE)
    report = here.seal()
    assert report["failures"] == []
    left = [entry for entry in report["skipped"] if "the image's own loader can load it" in entry["reason"]]
    bare = {"PATH": "/nonexistent", "HOME": "/tmp"}
    program = f"{here.root}/bin/{agent.command}"
    assert here.run(program, "--version", env=bare).strip() == agent.says

    write_decoys(here.decoys, libc)
    if left:
        for decoy in here.decoys.iterdir():
            if decoy.name not in HARMLESS:
                decoy.unlink()
    assert here.run(program, "--version", env={**bare, "LD_LIBRARY_PATH": "/decoys"}).strip() == agent.says

    again = here.seal()
    assert not any(again[key]["count"] for key in ("scripts", "interpreters", "rpaths"))
    sealed = f"{report['scripts']['count']} scripts, {report['interpreters']['count']} programs"
    rows[kind, libc, f"{agent.command} {agent.version}"] = f"{sealed} | {_fate(report, agent)}"


def _fate(report: dict[str, Any], agent: Agent) -> str:
    """Say what became of the agent's own large program."""
    if any(_is_own(path, agent) for path in report["interpreters"]["paths"]):
        return "sealed"
    reasons = [entry["reason"] for entry in report["skipped"] if _is_own(entry["path"], agent)]
    return reasons[0] if reasons else "none"


def _is_own(path: str, agent: Agent) -> bool:
    return path.rpartition("/")[2] in (agent.command, f"{agent.command}.exe")


def test_an_agent_whose_own_installer_did_not_run_is_shown_in_the_report(
    place: Callable[[str, str], Place],
) -> None:
    here = place("bare", "musl")
    here.install(CLAUDE, {"npm_config_ignore_scripts": "true"})
    report = here.seal()
    shown = {entry["path"]: entry["reason"] for entry in report["skipped"]}
    assert "neither an ELF file nor a script" in shown[f"{here.root}/bin/claude"]
