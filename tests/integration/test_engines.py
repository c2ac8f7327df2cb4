"""Both engines, asked the same: containers, what runs in them, copies, and nothing left behind."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.engine import (
    ContainerError,
    ContainerSpec,
    ContainerTimeoutError,
    Engine,
    ImageError,
    Outcome,
    container,
)
from tests.archives import tar_bytes
from tests.integration.engines import BUSYBOX, SECONDS, containers_of, eventually, interfaces, run_in
from tests.integration.ground import processes_with

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_an_engine_says_what_it_is(engine: Engine) -> None:
    info = engine.info()
    assert info.name == engine.name
    assert info.server_version[0].isdigit()
    assert info.api_version[0].isdigit()
    assert info.storage_driver
    assert info.storage_root.startswith("/")
    assert info.address.startswith("unix://")


def test_a_program_gets_its_arguments_environment_user_and_folder(engine: Engine, bare_image: str) -> None:
    outcome = run_in(
        engine,
        bare_image,
        BUSYBOX,
        "sh",
        "-c",
        'echo "$A|$1|$(id -u):$(id -g)|$(pwd)"; ls /etc/passwd',
        "name",
        "two words",
        env={"A": "b c"},
        user="1000:1001",
        workdir="/bin",
    )
    assert outcome.stdout == b"b c|two words|1000:1001|/bin\n"
    assert b"/etc/passwd" in outcome.stderr, "the engine made up an entry for the user"


def test_both_engines_give_a_program_the_same_environment(
    docker_engine: Engine, podman_engine: Engine, image: Callable[[Engine, str], str]
) -> None:
    def environment(engine: Engine) -> set[bytes]:
        lines = run_in(engine, image(engine, "bare"), BUSYBOX, "env", env={"A": "b"}).stdout.splitlines()
        return {line for line in lines if not line.startswith(b"HOSTNAME=")}

    assert environment(docker_engine) == environment(podman_engine)


@pytest.mark.parametrize("network", ["none", "host"])
def test_a_container_has_the_network_that_it_was_given(engine: Engine, bare_image: str, network: str) -> None:
    host = interfaces(Path("/proc/net/dev").read_text())
    seen = interfaces(
        run_in(engine, bare_image, BUSYBOX, "cat", "/proc/net/dev", network=network).stdout.decode()
    )
    assert seen == (host if network == "host" else {"lo"})


def test_a_read_only_root_has_writable_folders_only_where_asked(engine: Engine, bare_image: str) -> None:
    script = (
        "echo y >/tmp/f && cat /tmp/f; cp /bin/busybox /tmp/ && /tmp/busybox echo runs; echo z >/run/f; >/f"
    )
    outcome = run_in(
        engine, bare_image, BUSYBOX, "sh", "-c", script, read_only=True, tmpfs=("/tmp",), user="1000"
    )
    assert outcome.stdout == b"y\nruns\n"
    assert b"/f: Read-only file system" in outcome.stderr
    assert outcome.code != 0


def test_bound_folders_are_read_only_or_writable_as_asked(
    engine: Engine, bare_image: str, tmp_path: Path
) -> None:
    (tmp_path / "ro").mkdir()
    (tmp_path / "rw").mkdir()
    (tmp_path / "ro/f").write_text("read\n")
    outcome = run_in(
        engine,
        bare_image,
        BUSYBOX,
        "sh",
        "-c",
        "/bin/busybox cat /a/f; echo written > /b/f; echo no > /a/f",
        binds=((str(tmp_path / "ro"), "/a", "ro"), (str(tmp_path / "rw"), "/b", "rw")),
    )
    assert outcome.stdout == b"read\n"
    assert b"Read-only file system" in outcome.stderr
    assert (tmp_path / "rw/f").read_text() == "written\n"


def test_output_comes_apart_and_byte_for_byte(engine: Engine, bare_image: str) -> None:
    script = (
        r"printf 'a\377\000\r\n\n'; /bin/busybox head -c 100000 /dev/zero | /bin/busybox tr '\0' x; "
        r"printf 'e\200' >&2; exit 42"
    )
    outcome = run_in(engine, bare_image, BUSYBOX, "sh", "-c", script)
    assert outcome == Outcome(42, b"a\xff\x00\r\n\n" + b"x" * 100000, b"e\x80")


def test_a_container_that_takes_too_long_is_killed_and_says_so(engine: Engine, bare_image: str) -> None:
    began = time.monotonic()
    with pytest.raises(ContainerTimeoutError, match=r"within 2 s and was killed[^$]*half-way"):
        run_in(
            engine, bare_image, BUSYBOX, "sh", "-c", "echo half-way; exec /bin/busybox sleep 98761", timeout=2
        )
    assert time.monotonic() - began < 30
    assert eventually(lambda: not processes_with("98761"))


def test_a_program_that_is_not_there_is_an_error_that_names_it(engine: Engine, bare_image: str) -> None:
    with pytest.raises(ContainerError, match="/no/such/program"):
        run_in(engine, bare_image, "/no/such/program")


def test_an_image_that_is_not_there_is_an_error_that_names_it(engine: Engine) -> None:
    with pytest.raises(ImageError, match="no-such-image:1"):
        run_in(engine, "capsule-test/no-such-image:1", BUSYBOX)
    assert not engine.has_image("capsule-test/no-such-image:1")


def test_an_image_that_cannot_be_pulled_is_an_input_that_cannot_be_had(engine: Engine) -> None:
    with pytest.raises(ImageError, match="localhost:1/nothing") as caught:
        engine.pull("localhost:1/nothing:1")
    assert caught.value.exit_code == 3


def test_files_go_in_and_come_out_of_a_container_that_never_ran(engine: Engine, bare_image: str) -> None:
    archive = tar_bytes({"in/f": b"content", "in/g": b"x" * 3_000_000})
    with container(engine, ContainerSpec(image=bare_image, argv=(BUSYBOX,))) as made:
        engine.copy_in(made, "/", (archive[at : at + 10000] for at in range(0, len(archive), 10000)))
        with tarfile.open(fileobj=io.BytesIO(b"".join(engine.copy_out(made, "/in")))) as copied:
            assert {member.name: member.size for member in copied if member.isfile()} == {
                "in/f": 7,
                "in/g": 3_000_000,
            }
        with tarfile.open(fileobj=io.BytesIO(b"".join(engine.copy_out(made, "/bin")))) as copied:
            assert copied.getmember("bin/sh").linkname == "busybox"
        with pytest.raises(ContainerError, match="/nowhere"):
            list(engine.copy_out(made, "/nowhere"))
        with pytest.raises(ContainerError, match="/nowhere"):
            engine.copy_in(made, "/nowhere", [archive])


def test_a_copy_that_is_given_up_half_way_does_no_harm(engine: Engine, bare_image: str) -> None:
    with container(engine, ContainerSpec(image=bare_image, argv=(BUSYBOX,))) as made:
        chunks = engine.copy_out(made, "/bin/busybox")
        next(chunks)
        chunks.close()
        assert sum(len(chunk) for chunk in engine.copy_out(made, "/bin/busybox")) > 1_000_000


def test_a_container_is_removed_behind_its_block_also_after_an_error(engine: Engine, bare_image: str) -> None:
    before = containers_of(engine)

    def interrupted() -> None:
        with container(engine, ContainerSpec(bare_image, (BUSYBOX,))):
            assert len(containers_of(engine)) == len(before) + 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with container(engine, ContainerSpec(bare_image, (BUSYBOX, "true"))) as made:
        engine.start(made, SECONDS)
    assert containers_of(engine) == before
    engine.remove_container(made)


@pytest.mark.parametrize(
    ("kind", "argv", "said"),
    [
        ("nopath", ("/bin/sh", "-c", "echo runs"), b"runs"),
        ("musl", ("/bin/sh", "-c", "/lib/ld-musl-*.so.1 2>&1; true"), b"musl libc"),
        ("bullseye", ("/bin/bash", "-c", "cat /etc/debian_version; ldd --version"), b"2.31"),
        ("bookworm", ("/bin/bash", "-c", "cat /etc/debian_version; ldd --version"), b"2.36"),
        ("trixie", ("/bin/bash", "-c", "cat /etc/debian_version; ldd --version"), b"2.41"),
    ],
)
def test_each_kind_of_image_runs_its_own_programs(
    engine: Engine, image: Callable[[Engine, str], str], kind: str, argv: tuple[str, ...], said: bytes
) -> None:
    outcome = run_in(engine, image(engine, kind), *argv, user="1000")
    assert (outcome.code, outcome.stderr) == (0, b"")
    assert said in outcome.stdout
