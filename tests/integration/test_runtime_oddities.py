"""Containers whose /tmp, image or engine isn't as usual: what works there, and what is said of the rest."""

from __future__ import annotations

import io
import os
import tarfile
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime import EngineError, TargetError, UsageError, open_environment, probe
from tests import images
from tests.elves import ElfSpec, make_elf
from tests.integration.containers import Containers, Small, entries, podman_limits, running, small
from tests.integration.test_runtime_crowds import busybox
from tests.servers import body, serve
from tests.targets import TAG

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.engine import Engine

pytestmark = pytest.mark.engine
__all__ = ["busybox", "podman_limits", "running", "small"]

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
