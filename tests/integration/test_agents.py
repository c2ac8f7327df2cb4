"""Real agents, from their specifications in docs/harnesses to a program that runs by its absolute path.

`make test` runs a diagonal of images and agents, `make matrix` all cells, whose rows in the table of
docs/agents.md are then written anew. The package managers' caches serve all cells, between runs too.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from capsule_build.runtime import SetUp, UsageError, installed, load_harness, seal, set_up
from capsule_build.runtime.files import write_atomically
from tests import images
from tests.integration.containers import podman_limits
from tests.integration.decoys import write_decoys
from tests.integration.harnesses import Supply, start
from tests.integration.pythons import origin_answers
from tests.integration.test_node24_setup import registry_access
from tests.integration.test_python_harness import registries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capsule_build.runtime import Environment, SealReport
    from tests.integration.capsules import Capsules
    from tests.integration.pythons import Bind, PythonCapsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(2400)]
__all__ = ["podman_limits", "registries"]

DOCUMENTS: Final = Path(__file__).parents[2] / "docs"
MARK: Final = "<!-- written by make matrix -->\n"
HEADING: Final = """| image | engine | capsule | agent | sealed | what became of its program |
| --- | --- | --- | --- | --- | --- |
"""
CACHES: Final = {
    "npm install -g": "npm install -g --cache=/caches/npm --prefer-offline",
    "uv pip install": "uv pip install --cache-dir=/caches/uv",
    "pip install": "pip install --cache-dir=/caches/pip",
}
# What a program that the image's own loader loads may find in LD_LIBRARY_PATH without taking harm.
HARMLESS: Final = ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1")
NOT_HERE: Final = "not run: a CPython 3.12 for musl can't be had on that machine"


@dataclass(frozen=True)
class Agent:
    """An agent: its specification's name, its version, and what its check prints."""

    name: str
    version: str
    says: str
    tag: str = "node24-v1"

    @property
    def is_python(self) -> bool:
        return self.tag.startswith("python")


CLAUDE: Final = Agent("claude-code", "2.1.332", "2.1.332 (Claude Code)")
CODEX: Final = Agent("codex", "0.171.0", "codex-cli 0.171.0")
OPENHANDS: Final = Agent("openhands", "1.23.0", "", "python312-v1")
HERMES: Final = Agent("hermes", "0.19.0", "Hermes Agent v0.19.0", "python312-node24-v1")


@dataclass(frozen=True)
class Cell:
    """An image in an engine, the capsule's libc, and an agent."""

    engine: str
    kind: str
    libc: str
    agent: Agent

    def __str__(self) -> str:
        return f"{self.engine}-{self.kind}-{self.libc}-{self.agent.name}"


PLACES: Final = (
    ("podman", "bare", "musl"),
    ("podman", "bare", "glibc"),
    ("docker", "bullseye", "glibc"),
    ("docker", "bookworm", "glibc"),
    ("podman", "trixie", "glibc"),
    ("docker", "musl", "musl"),
)
MATRIX: Final = tuple(
    Cell(*place, agent)
    for place in PLACES
    for agent in (CLAUDE, CODEX, OPENHANDS, HERMES)
    # For Python one of the two is enough where an image has no C library.
    if not (agent.is_python and place[1:] == ("bare", "musl"))
)
DIAGONAL: Final = (
    Cell("podman", "bare", "musl", CLAUDE),
    Cell("docker", "musl", "musl", CODEX),
    Cell("podman", "trixie", "glibc", CODEX),
    Cell("podman", "bare", "glibc", OPENHANDS),
    Cell("docker", "bullseye", "glibc", HERMES),
)


@dataclass(frozen=True)
class Ground:
    """What cells share: bundles, the way to package registries, and the caches."""

    supply: Callable[[Cell], Supply]
    variables: dict[str, str]
    volumes: tuple[str, ...]


@pytest.fixture(scope="module")
def ground(
    capsules: Capsules,
    python_capsules: PythonCapsules,
    registries: tuple[dict[str, str], tuple[Bind, ...]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Ground:
    made: dict[tuple[str, str], Supply] = {}

    def supply(cell: Cell) -> Supply:
        key = (cell.agent.tag, cell.libc)
        if key not in made:
            if not cell.agent.is_python:
                bundle = capsules.built("podman", cell.libc).path
            elif "node" in cell.agent.tag:
                bundle = python_capsules.built("both").path
            else:
                bundle = python_capsules.built(cell.libc if origin_answers() else "glibc").path
            made[key] = Supply(
                bundle, cell.agent.tag, tmp_path_factory.mktemp("supply"), "http://127.0.0.1:9/"
            )
        return made[key]

    variables, files = registry_access()
    more_variables, more_files = registries
    caches = images.state_folder() / "caches"
    caches.mkdir(exist_ok=True)
    volumes = [f"--volume={here}:{there}:{mode}" for here, there, mode in {*files, *more_files}]
    return Ground(supply, {**more_variables, **variables}, (*volumes, f"--volume={caches}:/caches"))


@pytest.fixture(scope="session")
def rows() -> Iterator[dict[Cell, str]]:
    """Collect what each cell found, and put it into the document's table; other cells' rows stay."""
    found: dict[Cell, str] = {}
    yield found
    document = DOCUMENTS / "agents.md"
    head, _, table = document.read_text().partition(MARK)
    lines = table.splitlines()
    known = {row(cell): line for cell in MATRIX for line in lines if line.startswith(row(cell))}
    known.update({row(cell): f"{row(cell)}{what} |" for cell, what in found.items()})
    kept = [known[row(cell)] for cell in MATRIX if row(cell) in known]
    write_atomically(document, (head + MARK + HEADING + "".join(f"{line}\n" for line in kept)).encode())


def row(cell: Cell) -> str:
    """Return how a cell's row of the table begins."""
    agent = f"{cell.agent.name} {cell.agent.version}"
    return f"| {cell.kind} | {cell.engine} | {cell.libc} | {agent} | "


@pytest.mark.parametrize("cell", DIAGONAL, ids=str)
def test_an_agent_runs_from_its_specification(
    request: pytest.FixtureRequest, ground: Ground, cell: Cell, tmp_path: Path
) -> None:
    run_cell(request, ground, cell, tmp_path)


@pytest.mark.matrix
@pytest.mark.parametrize("cell", MATRIX, ids=str)
def test_every_agent_runs_in_every_image(
    request: pytest.FixtureRequest, ground: Ground, cell: Cell, tmp_path: Path, rows: dict[Cell, str]
) -> None:
    rows[cell] = run_cell(request, ground, cell, tmp_path)


def run_cell(request: pytest.FixtureRequest, ground: Ground, cell: Cell, folder: Path) -> str:
    """Set an agent up and run it; return what the table says of it."""
    engine = request.getfixturevalue(f"{cell.engine}_engine")
    supply = ground.supply(cell)
    with contextlib.ExitStack() as stack:
        decoys = folder / "decoys"
        decoys.mkdir()
        options = [*ground.volumes, f"--volume={decoys}:/decoys:ro"]
        environment = start(engine, cell.kind, stack, *options, network="host")
        harness = load_harness(specification(cell.agent, ground.variables, folder))
        if cell.agent.is_python and cell.libc == "musl" and not origin_answers():
            with pytest.raises(UsageError, match="musl"):
                set_up(harness, environment, registry=supply.registry, store=supply.store)
            return f"{NOT_HERE} | none"
        done = set_up(harness, environment, registry=supply.registry, store=supply.store)
        assert done.is_new
        assert done.seal is not None
        assert done.seal.failures == ()
        check_runs(cell, environment, done, decoys)
        check_is_idempotent(cell, environment, done, supply, harness=specification(cell.agent, {}, folder))
        return f"{summary(done.seal)} | {fate(done, cell.agent)}"


def specification(agent: Agent, variables: dict[str, str], folder: Path) -> Path:
    """Write an agent's specification, with this machine's registries and the tests' caches."""
    document = json.loads((DOCUMENTS / "harnesses" / f"{agent.name}.json").read_text())
    assert agent.version in (document.get("openhands_version") or document["install_command"])
    if version := document.pop("openhands_version", None):
        document["install_command"] = load_harness(DOCUMENTS / "harnesses/openhands.json").install_command
        assert version in document["install_command"]
        document["check_command"] = ["python", "-c", "import openhands.sdk, openhands.tools"]
    command = document["install_command"]
    plain = next(start for start in CACHES if command.startswith(start))
    document["install_command"] = command.replace(plain, CACHES[plain], 1)
    document["install_env"] = variables
    path = folder / f"{agent.name}.json"
    path.write_text(json.dumps(document))
    return path


def check_runs(cell: Cell, environment: Environment, done: SetUp, decoys: Path) -> None:
    """Check that an agent runs by its path, with nothing on PATH, and among libraries that end programs."""
    bare = {"PATH": "/nonexistent", "HOME": "/tmp"}
    argv = [done.path, "--version"]
    if cell.agent is OPENHANDS:
        argv = [done.path, "-c", "import openhands.sdk, openhands.tools, sys; print(sys.executable)"]
    expected = cell.agent.says or done.path
    write_decoys(decoys, cell.libc)
    assert done.seal is not None
    left = [item for item in done.seal.skipped if "the image's own loader can load it" in item.reason]
    if left:
        for decoy in decoys.iterdir():
            if decoy.name not in HARMLESS:
                decoy.unlink()
    for variables in (bare, {**bare, "LD_LIBRARY_PATH": "/decoys"}):
        result = environment.run(argv, env=variables, timeout=300)
        assert result.code == 0, result
        assert result.text.splitlines()[0].startswith(expected), result


def check_is_idempotent(
    cell: Cell, environment: Environment, done: SetUp, supply: Supply, *, harness: Path
) -> None:
    """Check that a second set-up finds the agent, and a second seal changes nothing."""
    again = set_up(load_harness(harness), environment, registry=supply.registry, store=supply.empty_store)
    assert (again.is_new, again.path, again.sha256) == (False, done.path, done.sha256)
    capsule = installed(cell.agent.tag, environment, registry=supply.registry)
    assert capsule is not None
    assert seal(capsule, environment).changed == 0


def summary(report: SealReport) -> str:
    return (
        f"{len(report.scripts)} scripts, {len(report.interpreters)} programs, {len(report.rpaths)} run paths"
    )


def fate(done: SetUp, agent: Agent) -> str:
    """Say what became of an agent's own large program; of a Python agent's, its interpreter."""
    if agent.is_python:
        return "the capsule's python"
    names = (done.path.rpartition("/")[2], f"{done.path.rpartition('/')[2]}.exe")
    assert done.seal is not None
    if any(path.rpartition("/")[2] in names for path in done.seal.interpreters):
        return "sealed"
    reasons: list[Any] = [item.reason for item in done.seal.skipped if item.path.rpartition("/")[2] in names]
    return reasons[0] if reasons else "none"
