"""Capsules in running containers of both engines, through the runtime module alone."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.engine.limits import configured_files, merged_configuration, needed_here
from capsule_build.runtime import (
    DifferenceError,
    EngineError,
    TargetError,
    UsageError,
    install,
    installed,
    open_environment,
    probe,
    uninstall,
    verify,
)
from capsule_build.runtime.process import run
from tests import images
from tests.bundles import file
from tests.elves import ElfSpec, make_elf
from tests.integration.test_runtime_crowds import busybox, crowd
from tests.servers import body, serve
from tests.targets import TAG, megabyte, registry_of, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule_build.engine import Engine
    from capsule_build.runtime import Environment, Registry, Store
    from tests.integration.capsules import Capsules

pytestmark = pytest.mark.engine
__all__ = ["busybox"]

LIBC = {
    "bare": None,
    "nopath": None,
    "musl": "musl",
    "bullseye": "glibc",
    "bookworm": "glibc",
    "trixie": "glibc",
}
VERSION = {"musl": "1.2.5", "bullseye": "2.31", "bookworm": "2.36", "trixie": "2.41"}
FOREVER = ("/bin/sh", "-c", "while :; do sleep 1000; done")


@pytest.fixture(autouse=True, scope="module")
def podman_limits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What Podman's command line has to be told on this machine; the runtime leaves the user's alone."""
    needs = needed_here()
    with pytest.MonkeyPatch.context() as patch:
        if needs:
            path = tmp_path_factory.mktemp("podman") / "containers.conf"
            files = configured_files(Path.home(), root=os.geteuid() == 0)
            path.write_text(merged_configuration(files, needs))
            patch.setenv("CONTAINERS_CONF", str(path))
        yield


class Containers:
    """Starts containers and knows which engine they are in."""

    def __init__(self, engine: Engine, stack: contextlib.ExitStack) -> None:
        self.engine = engine
        self._stack = stack

    def start(self, kind: str, *options: str, command: tuple[str, ...] = FOREVER) -> str:
        """Start a container of an image, or of one of `images.KINDS`; return its environment's short name."""
        name = f"capsule-runtime-{uuid.uuid4().hex[:12]}"
        image = kind if "/" in kind else images.image(self.engine, kind)
        self._stack.callback(self.remove, name)
        run(
            [
                self.engine.name,
                "run",
                "--detach",
                "--network=none",
                f"--name={name}",
                *options,
                image,
                *command,
            ],
            timeout=120,
        )
        return f"{self.engine.name}:{name}"

    def remove(self, name: str) -> None:
        """Remove a container at once: its shell hears no SIGTERM, and Podman would wait ten seconds."""
        self.ask("rm", "--force", *([] if self.engine.name == "docker" else ["--time=0"]), name)

    def ask(self, *arguments: str) -> None:
        run([self.engine.name, *arguments], check=False, timeout=120)


@pytest.fixture
def running(engine: Engine) -> Iterator[Containers]:
    with contextlib.ExitStack() as stack:
        yield Containers(engine, stack)


class Small:
    """A bundle of 1 MB for a libc, the store that holds it, and the registry lock."""

    def __init__(self, folder: Path, libc: str, program: Path) -> None:
        self.store, self.bundle = stored(folder, megabyte(libc, program).data())
        self.registry = registry_of(self.bundle)

    def install(self, environment: Environment, **options: Any) -> Any:
        return install(TAG, environment, registry=self.registry, store=self.store, **options)

    def cycle(self, environment: Environment) -> None:
        """Install, run, verify, uninstall."""
        done = self.install(environment)
        assert done.is_new
        said = environment.run([done.tools["node"]])
        assert said.stdout == b"node works\n", said
        assert verify(TAG, environment, registry=self.registry, store=self.store).root == done.root
        assert not self.install(environment).is_new
        assert uninstall(TAG, environment, registry=self.registry)
        # The image is as it was.
        left = environment.run(["/bin/sh", "-c", "for one in /tmp/agentcompass-*; do echo $one; done"])
        assert left.text == "/tmp/agentcompass-*\n"


@pytest.fixture
def small(tmp_path: Path, busybox: Path) -> Small:
    return Small(tmp_path, "glibc", busybox)


def entries(environment: Environment) -> list[str]:
    script = (
        "PATH=/usr/bin:/bin; for one in /tmp/agentcompass-capsules/* /tmp/agentcompass-capsules/.[!.]*; do "
    )
    script += 'if [ -e "$one" ]; then echo "${one##*/}"; fi; done'
    return environment.run(["/bin/sh", "-c", script]).text.split()


def node24(capsules: Capsules, folder: Path) -> tuple[Registry, Store]:
    """A store with both variants of node24, and the registry lock that names them."""
    paths = []
    for libc in ("glibc", "musl"):
        built = capsules.built("docker", libc).path
        store, path = stored(folder, b"", built.name)
        path.unlink()
        os.link(built, path)
        paths.append(path)
    return registry_of(*paths), store


@pytest.mark.parametrize("kind", images.KINDS)
def test_node24_in_images_of_every_kind(
    running: Containers, capsules: Capsules, tmp_path: Path, kind: str
) -> None:
    registry, store = node24(capsules, tmp_path)
    environment = open_environment(running.start(kind))
    target = probe(environment)
    assert target.platform.architecture == os.uname().machine
    assert target.libc == LIBC[kind]
    assert target.platform.libc == (LIBC[kind] or "glibc")
    assert target.libc_version == VERSION.get(kind)
    assert target.user == 0
    assert (target.notes != ()) == (LIBC[kind] is None)

    done = install(TAG, environment, registry=registry, store=store, needs=("node", "npm"))
    assert done.platform.endswith(LIBC[kind] or "glibc")
    assert environment.run([done.tools["node"], "--version"]).stdout == b"v24.19.0\n"
    npm = environment.run([done.launcher, "npm", "--version"])
    assert npm.stdout == b"11.17.0\n", npm
    assert verify(TAG, environment, registry=registry, store=store).sha256 == done.sha256
    assert uninstall(TAG, environment, registry=registry)
    assert entries(environment) == []


def test_a_user_who_is_not_root(running: Containers, small: Small) -> None:
    environment = open_environment(running.start("bookworm", "--user=1234:2345"))
    target = probe(environment)
    assert (target.user, target.group) == (1234, 2345)
    small.cycle(environment)
    root = small.install(environment).root
    listed = environment.run(["ls", "-lnA", f"{root}/bin"]).text.splitlines()[1:]
    assert {line.split()[2] for line in listed} == {"1234"}
    written = environment.run(["/bin/sh", "-c", f"echo x >{root}/x; echo x >{root}/bin/node"])
    assert written.error_text.count("ermission denied") == 2


def test_another_user_of_the_container_takes_what_root_installed(running: Containers, small: Small) -> None:
    name = running.start("bookworm")
    small.install(open_environment(name))
    other = open_environment(name, user="1234")
    assert not small.install(other).is_new
    with pytest.raises(TargetError, match=r"ermission denied|not permitted|can't be removed"):
        uninstall(TAG, other, registry=small.registry)
    assert installed(TAG, other, registry=small.registry) is not None


def test_a_folder_that_another_user_squatted(running: Containers, small: Small) -> None:
    name = running.start("bookworm")
    squatter = open_environment(name, user="1234")
    squatter.run(["mkdir", "/tmp/agentcompass-capsules"])
    with pytest.raises(TargetError, match="belongs to the user 1234"):
        small.install(open_environment(name))
    squatter.run(["/bin/sh", "-c", "rmdir /tmp/agentcompass-capsules; ln -s /tmp /tmp/agentcompass-capsules"])
    with pytest.raises(TargetError, match="is a symlink"):
        small.install(open_environment(name))


# /tmp as others have it


@pytest.mark.parametrize("kind", ["bookworm", "bare"])
def test_a_tmpfs_with_exec_at_tmp(running: Containers, small: Small, kind: str) -> None:
    small.cycle(open_environment(running.start(kind, "--tmpfs=/tmp:exec,mode=1777")))


def test_a_tmpfs_over_a_read_only_image(running: Containers, small: Small) -> None:
    small.cycle(open_environment(running.start("bookworm", "--read-only", "--tmpfs=/tmp:exec,mode=1777")))


def test_a_volume_at_tmp(running: Containers, small: Small, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume").chmod(0o1777)
    small.cycle(open_environment(running.start("bookworm", f"--volume={tmp_path}/volume:/tmp")))


@pytest.mark.parametrize("kind", ["noexec", "read-only", "small", "not writable"])
def test_what_rules_a_capsule_out_is_said_before_any_download(
    running: Containers, small: Small, kind: str, tmp_path: Path
) -> None:
    # Podman makes a tmpfs over a read-only image's /tmp, unless it is told not to.
    bare = () if running.engine.name == "docker" else ("--read-only-tmpfs=false",)
    options, said = {
        "noexec": (("--tmpfs=/tmp:noexec,mode=1777",), "mounted noexec"),
        "read-only": (("--read-only", *bare), "/tmp is read-only"),
        "small": (("--tmpfs=/tmp:exec,mode=1777,size=16m",), "/tmp has room for"),
        "not writable": ((f"--volume={tmp_path}:/tmp", "--user=1234"), "can't write to /tmp"),
    }[kind]
    small.bundle.unlink()
    with serve() as site:
        site.answers["/a"] = body(b"never")
        capsule = small.registry.capsules[TAG]
        variants = {key: replace(one, urls=(f"{site.url}a",)) for key, one in capsule.variants.items()}
        small.registry = replace(small.registry, capsules={TAG: replace(capsule, variants=variants)})
        with pytest.raises(TargetError, match=said) as caught:
            small.install(open_environment(running.start("bookworm", *options)))
        assert site.asked == []
    assert caught.value.exit_code == 7


def test_a_target_that_fills_up_is_said_and_left_clean(
    running: Containers, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = open_environment(running.start("bookworm", "--tmpfs=/tmp:exec,mode=1777,size=1m"))
    monkeypatch.setattr("capsule_build.runtime.probing.Target.check_room", lambda *_: None)
    with pytest.raises(TargetError, match="o space left on device"):
        small.install(environment)
    assert entries(environment) == []


# Images as others have them


def image_of(running: Containers, folder: Path, files: dict[str, bytes]) -> str:
    """Import an image that holds only these files, all of them executable."""
    tar = folder / f"{uuid.uuid4().hex}.tar"
    with tarfile.open(tar, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    name = f"runtime-{uuid.uuid4().hex[:12]}"
    image = images.image_from_tar(running.engine, tar, name)
    running._stack.callback(running.ask, "rmi", "--force", image)
    return image


def without_shell(running: Containers, folder: Path, program: Path, files: dict[str, bytes]) -> Any:
    image = image_of(running, folder, {"busybox": program.read_bytes(), **files})
    name = running.start(image, command=("/busybox", "sleep", "1000"))
    return open_environment(name)


def test_an_image_without_a_shell(running: Containers, small: Small, busybox: Path, tmp_path: Path) -> None:
    # Its name would be a shell's, were it called so: busybox goes by how it is called.
    environment = without_shell(running, tmp_path, busybox, {})
    target = probe(environment)
    assert not target.has_shell
    assert target.libc is None
    assert target.platform.architecture == os.uname().machine
    with pytest.raises(TargetError, match="there is no '/bin/sh'") as caught:
        small.install(environment)
    assert "one static busybox is enough" in str(caught.value)


def test_an_image_with_a_shell_but_no_mv(running: Containers, small: Small) -> None:
    environment = open_environment(running.start("bookworm"))
    environment.run(["/bin/rm", "/bin/mv"])
    with pytest.raises(TargetError, match="commands that installing needs are missing: mv") as caught:
        small.install(environment)
    assert "static busybox" in str(caught.value)
    assert entries(environment) == []


def test_an_image_for_other_machines(
    running: Containers, small: Small, busybox: Path, tmp_path: Path
) -> None:
    """Its own programs couldn't run here, so one of this machine's keeps the container, and leaves."""
    loader = {"lib/ld-linux.so.2": make_elf(ElfSpec(bits=32, machine=3)), "etc/x": b""}
    environment = without_shell(running, tmp_path, busybox, loader)
    environment._facts["Path"] = "/etc/x"
    with pytest.raises(TargetError, match="32-bit i386"):
        small.install(environment)


# Engines as others have them


def test_a_container_that_is_not_there(engine: Engine) -> None:
    with pytest.raises(TargetError, match="has no container 'nobody-has-this'") as caught:
        open_environment(f"{engine.name}:nobody-has-this")
    assert f"{engine.name} ps --all" in str(caught.value)


def test_a_container_that_is_not_running(running: Containers) -> None:
    name = running.start("bare", command=("/bin/sh", "-c", "exit 0"))
    running.ask("wait", name.partition(":")[2])
    with pytest.raises(TargetError, match="isn't running") as caught:
        open_environment(name)
    assert f"{running.engine.name} start" in str(caught.value)


def test_a_container_that_goes_away(running: Containers, small: Small) -> None:
    environment = open_environment(running.start("bare"))
    running.remove(environment.name.partition(":")[2])
    with pytest.raises(TargetError):
        small.install(environment)


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_a_command_line_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match=f"'{name}' is not installed here") as caught:
        open_environment(f"{name}:web")
    assert "its socket alone is not enough" in str(caught.value)


def test_a_daemon_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    with pytest.raises(EngineError, match="docker doesn't answer") as caught:
        open_environment("docker:web")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", ["docker", "docker:", "podman:-x", "ssh:host", "", "local:/x"])
def test_what_is_no_environment(name: str) -> None:
    with pytest.raises(UsageError):
        open_environment(name)


def test_a_program_of_a_container_is_run_as_asked(running: Containers) -> None:
    environment = open_environment(running.start("bookworm"))
    said = environment.run(
        ["/bin/sh", "-c", "cat; echo $WORD; pwd; id -u; exit 3"],
        stdin=b"in\n",
        env={"WORD": "a b"},
        cwd="/usr",
        user="77",
    )
    assert (said.code, said.text) == (3, "in\na b\n/usr\n77\n")
    environment.put(b"hello", "/tmp/file", 0o751)
    assert environment.run(["stat", "-c", "%a %s", "/tmp/file"]).text == "751 5\n"


def test_verify_sees_what_was_changed_in_a_container(running: Containers, small: Small) -> None:
    environment = open_environment(running.start("bookworm"))
    root = small.install(environment).root
    environment.run(["/bin/sh", "-c", f"echo x >>{root}/share/text"])
    with pytest.raises(DifferenceError, match="share/text: has another content"):
        verify(TAG, environment, registry=small.registry, store=small.store)


def test_a_bundle_is_replaced_in_one_step(running: Containers, small: Small, busybox: Path) -> None:
    for kind in ("bookworm", "trixie"):
        environment = open_environment(running.start(kind))
        small.install(environment)
        data = small.bundle.read_bytes()
        small.bundle.write_bytes(
            megabyte("glibc", busybox).replace("share/text", file("share/text", b"anew")).data()
        )
        before, small.registry = small.registry, registry_of(small.bundle)
        assert small.install(environment, replace=True).is_new
        root = small.install(environment).root
        assert environment.run([f"{root}/bin/node"]).stdout == b"node anew\n"
        assert len(entries(environment)) == 2
        small.bundle.write_bytes(data)
        small.registry = before


# Many at once


def test_a_crowd_installs_into_one_container(running: Containers, small: Small, tmp_path: Path) -> None:
    options = {"kind": "install", "environment": running.start("bookworm")}
    crowd(tmp_path, small.registry, data=str(small.store.folder.parent), rounds=1, seconds=4.0, **options)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_a_crowd_installs_into_one_container(running: Containers, small: Small, tmp_path: Path) -> None:
    options = {"kind": "install", "environment": running.start("bare")}
    crowd(tmp_path, small.registry, data=str(small.store.folder.parent), rounds=50, seconds=4.0, **options)


def test_nothing_of_a_bundle_stays_on_this_machine(
    running: Containers, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = open_environment(running.start("bookworm"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    assert small.install(environment).is_new
    assert list(scratch.iterdir()) == []


def test_several_containers_at_once(running: Containers, small: Small) -> None:
    environments = [open_environment(running.start("bare")) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert all(done.is_new for done in pool.map(small.install, environments))
    for environment in environments:
        verify(TAG, environment, registry=small.registry, store=small.store)


# What the documents show


def test_the_example_of_one_s_own_environment(running: Containers, small: Small) -> None:
    text = (Path(__file__).parents[2] / "docs" / "runtime.md").read_text()
    code = text.partition("<!-- example: tested as it stands -->\n```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/runtime.md", "exec"), names)
    container = running.start("bookworm").partition(":")[2]
    prefix = [running.engine.name, "exec", "-i", container, "/bin/sh", "-c"]
    environment = names["CommandEnvironment"]("mine", prefix)
    small.cycle(environment)
    environment.put(b"data", "/tmp/file", 0o600)
    assert environment.run(["cat", "file"], cwd="/tmp").stdout == b"data"
    assert environment.run(["/bin/sh", "-c", "echo $A"], env={"A": "b c"}).text == "b c\n"


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
