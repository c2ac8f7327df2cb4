"""Node.js from each bundle, in images that have no libc, an old one, a new one or the other one."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest

from capsule_build.runtime.process import run
from tests import images
from tests.integration import certificates, decoys
from tests.integration.capsules import (
    LIBCS,
    NODE,
    NPM,
    changed_environment,
    configured_environment,
    printed_json,
    run_in,
    said,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsule, Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

Bind = tuple[str, str, Literal["ro", "rw"]]

PROGRAMS: Final = "/programs"
KINDS: Final = ("bare", "bullseye", "bookworm", "trixie", "musl")
OFF_DIAGONAL: Final = {("glibc", "bare"), ("musl", "bullseye"), ("glibc", "musl"), ("musl", "trixie")}
EVERYTHING: Final = ("self", "fork", "thread", "tls", "names", "tools", "shell", "libraries", "temporary")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program that prints facts, and keys and certificates for its servers."""
    folder = tmp_path_factory.mktemp("programs")
    shutil.copyfile(Path(__file__).with_name("programs") / "facts.js", folder / "facts.js")
    certificates.write_authority(folder, "trusted")
    certificates.write_authority(folder, "stranger")
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture(scope="session")
def decoy_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each libc a folder of decoys of its ABI."""
    folders = {libc: tmp_path_factory.mktemp(f"decoys-{libc}") for libc in LIBCS}
    for libc, folder in folders.items():
        decoys.write_decoys(folder, libc)
    return folders


def cells() -> list[Any]:
    """Every image and libc with Podman, and a diagonal of them with Docker."""
    everything = [(libc, kind) for libc in LIBCS for kind in KINDS]
    chosen = [("podman", *cell) for cell in everything]
    chosen += [("docker", *cell) for cell in everything if cell in OFF_DIAGONAL]
    return [pytest.param(*cell, id="-".join(cell)) for cell in chosen]


class Place:
    """An image with a capsule in it, read-only, at its install root."""

    def __init__(
        self, engine: Engine, kind: str, libc: str, tree: Path, capsule: Capsule, programs: Path
    ) -> None:
        self.engine = engine
        self.image = images.image(engine, kind)
        self.root = capsule.root
        self.node = f"{self.root}/runtime/node/bin/node"
        self._binds: tuple[Bind, ...] = (
            (str(tree), self.root, "ro"),
            (str(programs), PROGRAMS, "ro"),
        )
        self.facts_command = (f"{self.root}/bin/node", f"{PROGRAMS}/facts.js", self.root)

    def facts(
        self, *names: str, start: tuple[str, ...] = (), binds: tuple[Bind, ...] = (), **options: Any
    ) -> Any:
        """Return the named facts.

        Args:
            names: What `facts.js` knows.
            start: What is put before the command.
            binds: More binds.
            options: Of `ContainerSpec`.
        """
        environment = {"NODE_EXTRA_CA_CERTS": f"{PROGRAMS}/trusted-ca.pem", **options.pop("env", {})}
        argv = (*start, *self.facts_command, *names)
        outcome = run_in(
            self.engine, self.image, *argv, env=environment, binds=(*self._binds, *binds), **options
        )
        return printed_json(outcome)


@pytest.fixture
def place(
    request: pytest.FixtureRequest, capsules: Capsules, programs: Path
) -> Callable[[str, str, str], Place]:
    """`place(engine, libc, kind)`: an image with a capsule in it."""

    def make(engine: str, libc: str, kind: str) -> Place:
        opened: Engine = request.getfixturevalue(f"{engine}_engine")
        return Place(opened, kind, libc, capsules.tree(libc), capsules.built("podman", libc), programs)

    return make


def assert_node_works(facts: Any, where: Place) -> None:
    assert facts["self"]["version"] == f"v{NODE}"
    assert facts["self"]["execPath"] == facts["self"]["exe"] == facts["self"]["argv0"] == where.node
    assert facts["fork"]["product"] == 42
    assert facts["fork"]["execPath"] == where.node
    assert facts["fork"]["status"] == 0
    assert facts["thread"]["product"] == 42
    assert facts["thread"]["thread"] > 0
    assert facts["tls"]["trusted"] == {"text": "hello from trusted", "protocol": "TLSv1.3"}
    assert facts["tls"]["stranger"] == {"error": "UNABLE_TO_VERIFY_LEAF_SIGNATURE"}
    assert facts["names"] == {"callback": "127.0.0.1", "promise": "127.0.0.1"}
    assert facts["temporary"] == "written"
    strangers = [name for name in facts["libraries"] if not name.startswith(f"{where.root}/")]
    assert strangers == []
    assert facts["libraries"], "Node.js named no library, so that the line above could not fail"


def assert_tools_say_their_versions(facts: Any) -> None:
    sealer, launcher = facts["tools"].pop("seal-tree"), facts["tools"].pop("capsule-exec")
    assert facts["tools"] == {"node": f"v{NODE}", "npm": NPM, "npx": NPM}
    assert sealer.startswith("seal-tree ")
    assert launcher.startswith("capsule-exec ")


@pytest.mark.parametrize(("engine", "libc", "kind"), cells())
def test_node_works_in_an_image_that_it_was_not_made_for(
    place: Callable[[str, str, str], Place], engine: str, libc: str, kind: str
) -> None:
    where = place(engine, libc, kind)
    facts = where.facts(*EVERYTHING)
    assert_node_works(facts, where)
    assert_tools_say_their_versions(facts)
    assert facts["self"]["ld"] == []
    # A child of it is the image's own again.
    assert facts["shell"]["status"] == 0, facts["shell"]
    assert "PATH=" in facts["shell"]["text"]
    assert "LD_" not in facts["shell"]["text"]
    assert where.root not in facts["shell"]["text"]


@pytest.mark.parametrize(
    ("engine", "libc", "kind"), [("podman", "glibc", "bare"), ("docker", "musl", "trixie")]
)
def test_node_works_for_a_user_without_a_name_and_without_a_home(
    place: Callable[[str, str, str], Place], engine: str, libc: str, kind: str
) -> None:
    where = place(engine, libc, kind)
    start = (f"{where.root}/libexec/bash", "-c", 'unset HOME; exec "$@"', "bash")
    # npm itself asks for a home, and is given one below.
    names = tuple(name for name in EVERYTHING if name != "tools")
    facts = where.facts(*names, start=start, user="1000:1000", tmpfs=("/tmp",))
    assert_node_works(facts, where)
    assert (facts["self"]["uid"], facts["self"]["home"]) == (1000, None)
    assert facts["self"]["user"] == "ERR_SYSTEM_ERROR", "the image knows a user 1000"
    at_home = where.facts("tools", user="1000:1000", tmpfs=("/tmp",), env={"HOME": "/tmp"})
    assert_tools_say_their_versions(at_home)


@pytest.mark.parametrize("kind", ["bare", "bookworm", "musl"])
@pytest.mark.parametrize("libc", LIBCS)
def test_node_loads_nothing_that_ld_library_path_names(
    place: Callable[[str, str, str], Place], decoy_folders: dict[str, Path], libc: str, kind: str
) -> None:
    where = place("podman", libc, kind)
    # The image's own shell would be ended by them: a child of it is no fact about the capsule.
    names = tuple(name for name in EVERYTHING if name != "shell")
    folder = str(decoy_folders[libc])
    facts = where.facts(*names, binds=((folder, "/decoys", "ro"),), env={"LD_LIBRARY_PATH": "/decoys"})
    assert_node_works(facts, where)
    assert_tools_say_their_versions(facts)
    assert facts["self"]["ld"] == ["LD_LIBRARY_PATH"]


@pytest.mark.parametrize("libc", LIBCS)
def test_the_decoys_end_a_program_that_is_not_protected(
    decoy_folders: dict[str, Path], tmp_path: Path, libc: str
) -> None:
    program = str(decoys.write_victim(tmp_path, libc))
    assert run([program], check=False).code == 0
    folder = tmp_path / "only"
    folder.mkdir()
    shutil.copyfile(decoy_folders[libc] / "libz.so.1", folder / "libz.so.1")
    for decoy in (folder, decoy_folders[libc]):
        environment = changed_environment({"LD_LIBRARY_PATH": str(decoy)})
        ended = run([program], env=environment, check=False).code
        assert ended != 0
        assert decoy != folder or ended in {-signal.SIGILL, -signal.SIGTRAP}


def test_a_capsule_works_unpacked_under_a_strict_umask_where_there_is_no_path_and_only_tmp_can_be_written(
    engine: Engine, capsules: Capsules, programs: Path
) -> None:
    image = images.image(engine, "nopath")
    assert not [entry for entry in configured_environment(engine, image) if entry.startswith("PATH=")]
    capsule = capsules.built("podman", "musl")
    script = (
        "umask 077; b=/bin/busybox; root=$1; $b mkdir -p $root && "
        "$b tar -xzf /bundle.tar.gz --no-same-permissions -C $root && "
        '$b test "$($b stat -c %a $root/bin $root/runtime/node/bin/node $root/share/sbom.cdx.json '
        '| $b tr "\\n" " ")" = "700 700 600 " || exit 9; '
        "! $b touch /elsewhere 2>/dev/null || exit 8; unset PATH; shift; exec $@"
    )
    command = (f"{capsule.root}/bin/node", f"{PROGRAMS}/facts.js", capsule.root, *EVERYTHING)
    outcome = run_in(
        engine,
        image,
        *("/bin/busybox", "sh", "-c", script, "sh", capsule.root, *command),
        env={"NODE_EXTRA_CA_CERTS": f"{PROGRAMS}/trusted-ca.pem"},
        read_only=True,
        tmpfs=("/tmp",),
        binds=((str(capsule.path), "/bundle.tar.gz", "ro"), (str(programs), PROGRAMS, "ro")),
    )
    facts = printed_json(outcome)
    assert facts["self"]["execPath"] == f"{capsule.root}/runtime/node/bin/node", said(outcome)
    assert facts["fork"]["product"] == facts["thread"]["product"] == 42
    assert_tools_say_their_versions(facts)
