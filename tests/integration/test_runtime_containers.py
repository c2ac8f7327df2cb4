"""Capsules in running containers of both engines, through the runtime module alone."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime import (
    DifferenceError,
    TargetError,
    install,
    installed,
    open_environment,
    probe,
    uninstall,
    verify,
)
from tests import images
from tests.bundles import file
from tests.integration.containers import Containers, Small, entries, podman_limits, running, small
from tests.integration.test_runtime_crowds import busybox, crowd
from tests.targets import TAG, megabyte, registry_of, stored

if TYPE_CHECKING:
    from capsule_build.runtime import Registry, Store
    from tests.integration.capsules import Capsules

pytestmark = pytest.mark.engine
__all__ = ["busybox", "podman_limits", "running", "small"]

LIBC = {
    "bare": None,
    "nopath": None,
    "musl": "musl",
    "bullseye": "glibc",
    "bookworm": "glibc",
    "trixie": "glibc",
}
VERSION = {"musl": "1.2.5", "bullseye": "2.31", "bookworm": "2.36", "trixie": "2.41"}


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
