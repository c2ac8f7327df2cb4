"""The command `capsule` with real capsules and containers: what a person types, and what they read."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from capsule_build.runtime import open_environment
from capsule_build.runtime.process import Result, run
from tests import images
from tests.integration.capsules import COMMAND, changed_environment
from tests.integration.containers import Containers, podman_limits, running
from tests.targets import TAG, registry_of

if TYPE_CHECKING:
    from capsule_build.engine import Engine
    from capsule_build.runtime import Environment
    from tests.integration.capsules import Capsules

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
__all__ = ["podman_limits", "running"]

CAPSULE: Final = COMMAND.with_name("capsule")
SECONDS: Final = 300.0


def capsule(*words: str | Path, stdin: bytes | None = None) -> Result:
    """Run `capsule`, whatever its exit code is."""
    return run([str(CAPSULE), *map(str, words)], stdin=stdin, timeout=SECONDS, check=False)


def capsule_json(*words: str | Path, code: int = 0) -> dict[str, Any]:
    """Run `capsule ... --json`, which must end with `code`, and return what it printed."""
    done = capsule(*words, "--json")
    assert (done.code, bool(done.stdout)) == (code, True), done.error_text
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


@dataclass(frozen=True)
class Supply:
    """A registry lock with one real capsule, and a data folder that holds its bundle."""

    lock: Path
    data: Path
    sha256: str
    root: str

    @property
    def registry(self) -> tuple[str | Path, ...]:
        return ("--lock", self.lock)

    @property
    def store(self) -> tuple[str | Path, ...]:
        return (*self.registry, "--data-dir", self.data)


@pytest.fixture(scope="module")
def supply(capsules: Capsules, tmp_path_factory: pytest.TempPathFactory) -> Supply:
    built = capsules.built("podman", "glibc")
    folder = tmp_path_factory.mktemp("supply")
    (folder / "capsules").mkdir()
    os.link(built.path, folder / "capsules" / built.path.name)
    lock = folder / "registry.lock.json"
    lock.write_bytes(registry_of(built.path).to_bytes())
    return Supply(lock, folder, built.sha256, built.root)


def put(environment: Environment, path: str, data: bytes, mode: int = 0o755) -> str:
    environment.put(data, path, mode)
    return path


@pytest.mark.parametrize(
    ("engine", "kind"), [("podman", "bare"), ("docker", "bullseye")], indirect=["engine"]
)
def test_a_capsule_is_used_sealed_explained_and_removed(
    running: Containers, kind: str, supply: Supply
) -> None:
    env = running.start(kind)
    environment = open_environment(env)
    assert capsule_json("probe", env)["capsules"] == []
    missing = capsule("use", TAG, env, *supply.registry, "--", "node", "--version")
    assert (missing.code, missing.stdout) == (7, b"")
    assert f"capsule install {TAG} {env}" in missing.error_text

    first = capsule_json("install", TAG, env, *supply.store)
    assert (first["root"], first["sha256"], first["is_new"]) == (supply.root, supply.sha256, True)
    assert not capsule_json("install", TAG, env, *supply.store)["is_new"]
    assert capsule_json("probe", env)["capsules"][0]["sha256"] == supply.sha256

    # Input, output and exit status are the command's.
    script = "process.stdin.pipe(process.stdout); process.stderr.write('to stderr'); process.exitCode = 130"
    used = capsule("use", TAG, env, *supply.registry, "--", "node", "-e", script, stdin=b"\0in\n")
    assert (used.code, used.stdout, used.stderr) == (130, b"\0in\n", b"to stderr")

    # On a terminal the command has one, too.
    asked = [
        str(CAPSULE),
        "use",
        TAG,
        env,
        *map(str, supply.registry),
        "--",
        "node",
        "-p",
        "'terminal: ' + process.stdout.isTTY",
    ]
    seen = run(
        ["script", "--quiet", "--return", "--command", shlex.join(asked), "/dev/null"], timeout=SECONDS
    )
    assert "terminal: true" in seen.text

    # What a package manager leaves: a script that asks `env` for node.
    tool = f"{first['setup_root']}/bin/tool"
    put(environment, tool, b"#!/usr/bin/env node\nconsole.log('it runs')\n")
    before = capsule_json("why", tool, env, code=1)
    expected = {"bare": "interpreter-missing", "bullseye": "command-missing"}[kind]
    assert [problem["kind"] for problem in before["problems"]] == [expected]
    assert before["sealing"]["state"] == "unsealed"
    assert before["next_steps"] == [f"Seal it: capsule seal TAG {env}"]

    assert capsule_json("seal", TAG, env, *supply.registry, "--dry-run")["seal"]["scripts"]["count"] == 1
    assert capsule_json("seal", TAG, env, *supply.registry)["seal"]["scripts"]["paths"] == [tool]
    after = capsule_json("why", tool, env)
    assert (after["problems"], after["sealing"]["state"]) == ([], "sealed")
    assert f"{supply.root}/bin/node" in after["sealing"]["message"]
    assert environment.run([tool]).stdout == b"it runs\n"

    # Nothing else of the tree differs, for all that was done with it.
    environment.put(b"changed", f"{supply.root}/bin/npx")
    changed = capsule_json("verify", TAG, env, *supply.store, code=1)
    assert list(changed["differences"]) == ["bin/npx"]

    refused = capsule("uninstall", TAG, env, *supply.registry)
    assert refused.code == 7
    assert capsule_json("uninstall", TAG, env, *supply.registry, "--setups")["removed"]
    assert not capsule_json("uninstall", TAG, env, *supply.registry)["removed"]
    gone = capsule("why", f"{supply.root}/bin/node", env)
    assert (gone.code, "isn't there" in gone.text) == (1, True)


HOST_PROGRAM: Final = Path("/usr/bin/python3").resolve()
"""A program of this machine, Debian 12's: it needs glibc 2.34 or newer, libexpat and libz."""


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_programs_that_cant_start_are_explained_in_an_old_image(running: Containers) -> None:
    env = running.start("bullseye")
    environment = open_environment(env)
    old = put(environment, "/opt-program", HOST_PROGRAM.read_bytes())
    assert environment.run([old, "--version"]).code != 0
    told = capsule_json("why", old, env, code=1)
    missing = [problem["message"] for problem in told["problems"] if problem["kind"] == "library-missing"]
    assert any("'libexpat.so.1'" in message and "/lib/x86_64-linux-gnu" in message for message in missing)
    versions = [item["message"] for item in told["problems"] if item["kind"] == "version-missing"]
    assert any("of '/lib/x86_64-linux-gnu/libc.so.6', which hasn't it" in message for message in versions)
    assert any("its newest is GLIBC_2.31" in message for message in versions)
    assert any(item["path"].endswith("/libc.so.6") for item in told["libraries"])
    assert "capsule setup" in told["next_steps"][0]
    fine = capsule_json("why", "/bin/cat", env)
    assert (fine["problems"], fine["starts"]) == ([], True)
    in_words = capsule("why", old, env)
    assert in_words.code == 1
    assert in_words.text.startswith(f"{old} can't start in {env}:\n")


@pytest.mark.parametrize("engine", ["podman"], indirect=True)
def test_programs_that_cant_start_are_explained_in_an_image_with_one_shell(
    running: Containers,
) -> None:
    env = running.start("bare", "--tmpfs=/mounted:noexec")
    environment = open_environment(env)
    program = put(environment, "/program", HOST_PROGRAM.read_bytes())
    (problem,) = capsule_json("why", program, env, code=1)["problems"]
    assert problem["kind"] == "loader-missing"
    assert "'/lib64/ld-linux-x86-64.so.2', which isn't there" in problem["message"]
    script = put(environment, "/script", b"#!/usr/bin/env node\n")
    (problem,) = capsule_json("why", script, env, code=1)["problems"]
    assert (problem["kind"], "'/usr/bin/env'" in problem["message"]) == ("interpreter-missing", True)
    make = "busybox ln -s nothing /link && busybox cp /bin/busybox /mounted/busybox"
    assert environment.run(["/bin/sh", "-c", make]).code == 0
    for path, kind in (("/link", "dangling-symlink"), ("/mounted/busybox", "noexec")):
        told = capsule_json("why", path, env, code=1)
        assert [problem["kind"] for problem in told["problems"]] == [kind], path
    assert capsule_json("why", "/bin/busybox", env)["problems"] == []


def unpacked(kind: str, folder: Path) -> Path:
    """A root file system of `images.KINDS` in a folder."""
    folder.mkdir()
    run(["tar", "--extract", "--directory", str(folder), "--file", str(images.root_tar(kind))])
    return folder


@pytest.mark.parametrize(
    ("engine", "variable"), [("docker", "LD_PRELOAD"), ("podman", "LD_LIBRARY_PATH")], indirect=["engine"]
)
def test_a_library_of_the_other_libc_in_the_configuration_is_named(
    engine: Engine, running: Containers, variable: str, capsules: Capsules, tmp_path: Path
) -> None:
    """A library for musl by a name that `ls` of Debian asks for; preloaded, it breaks the shell, too."""
    tree, bare = unpacked("bullseye", tmp_path / "tree"), unpacked("bare", tmp_path / "bare")
    other = tree / "opt/other/libselinux.so.1"
    other.parent.mkdir(parents=True)
    shutil.copy(capsules.tree("glibc") / "abi/musl/libgcc_s.so.1", other)
    shutil.copy(bare / "bin/busybox", tree / "opt/busybox")
    image = images.image_from_tree(engine, tree, "other-libc")
    value = "/opt/other/libselinux.so.1" if variable == "LD_PRELOAD" else "/opt/other"
    env = running.start(image, f"--env={variable}={value}", command=("/opt/busybox", "sleep", "1000"))
    assert open_environment(env).run(["/bin/ls"]).code != 0
    told = capsule_json("why", "/bin/ls", env, code=1)
    (problem,) = [item for item in told["problems"] if item["kind"] == "other-libc"]
    assert problem["message"].startswith(f"{variable} brings '/opt/other/libselinux.so.1' into the process")
    assert problem["hint"].startswith(f"Unset {variable}")


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_an_image_without_a_shell_is_looked_into_by_copying(
    engine: Engine, running: Containers, tmp_path: Path
) -> None:
    tree = unpacked("bare", tmp_path / "tree")
    (tree / "bin/sh").unlink()
    shutil.copy(HOST_PROGRAM, tree / "program")
    (tree / "script").write_bytes(b"#!/usr/bin/node\n")
    (tree / "script").chmod(0o755)
    image = images.image_from_tree(engine, tree, "shell-less")
    env = running.start(image, command=("/bin/busybox", "sleep", "1000"))
    for path, kind in (
        ("/program", "loader-missing"),
        ("/script", "interpreter-missing"),
        ("/nothing", "missing"),
    ):
        told = capsule_json("why", path, env, code=1)
        assert [problem["kind"] for problem in told["problems"]] == [kind]
        assert any("no shell" in note for note in told["notes"])
    assert capsule_json("why", "/bin/busybox", env)["problems"] == []


@pytest.mark.parametrize("engine", ["podman"], indirect=True)
def test_a_program_for_glibc_is_explained_in_an_image_with_musl(running: Containers) -> None:
    env = running.start("musl")
    environment = open_environment(env)
    program = put(environment, "/program", HOST_PROGRAM.read_bytes())
    (problem,) = capsule_json("why", program, env, code=1)["problems"]
    assert (problem["kind"], "glibc" in problem["message"]) == ("loader-missing", True)
    # As some images have it: musl's loader at glibc's place. It says that it could load the program.
    environment.run(["/bin/busybox", "mkdir", "/lib64"])
    loader = f"/lib/ld-musl-{os.uname().machine}.so.1"
    environment.run(["/bin/busybox", "ln", "-s", loader, "/lib64/ld-linux-x86-64.so.2"])
    (problem,) = capsule_json("why", program, env, code=1)["problems"]
    assert (problem["kind"], loader in problem["message"]) == ("other-libc", True)


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_environments_and_engines_that_arent_there_are_one_message(running: Containers) -> None:
    assert capsule("probe", "lxc:x").code == 2
    gone = capsule("probe", f"{running.engine.name}:there-is-none")
    assert (gone.code, gone.stdout) == (7, b"")
    assert gone.error_text.startswith("error: ")
    unreachable = run(
        [str(CAPSULE), "probe", "docker:x"],
        env=changed_environment({"DOCKER_HOST": "unix:///no/such/socket"}),
        check=False,
    )
    assert (unreachable.code, "Traceback" in unreachable.error_text) == (4, False)
