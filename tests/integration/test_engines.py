"""Both engines, asked the same: builds without a network, containers, copies, and nothing left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.engine import (
    LABEL,
    BuildError,
    ContainerError,
    ContainerSpec,
    ContainerTimeoutError,
    Engine,
    ImageError,
    Outcome,
    container,
    select_engine,
)
from capsule_build.engine.docker import DockerEngine
from capsule_build.engine.podman import PodmanEngine
from capsule_build.runtime.health import _engine
from tests import images
from tests.archives import tar_bytes
from tests.integration.ground import processes_with

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

BUSYBOX = "/bin/busybox"
SECONDS = 60.0


def run_in(engine: Engine, image: str, *argv: str, timeout: float = SECONDS, **options: Any) -> Outcome:
    with container(engine, ContainerSpec(image=image, argv=argv, **options)) as made:
        return engine.start(made, timeout)


def write_context(folder: Path, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "busybox").write_bytes(_busybox())
    first = ["FROM scratch", f"LABEL {LABEL}=1", "COPY busybox /bin/busybox"]
    (folder / "Dockerfile").write_text("\n".join([*first, *lines]) + "\n")
    (folder / "busybox").chmod(0o755)
    return folder


def _busybox() -> bytes:
    with tarfile.open(images.root_tar("bare")) as archive:
        stream = archive.extractfile("bin/busybox")
        assert stream is not None
        return stream.read()


def build(engine: Engine, context: Path, **options: Any) -> tuple[str, list[str]]:
    lines: list[str] = []
    made = engine.build(context, **{"tag": None, "labels": {}, "on_line": lines.append, **options})
    return made, lines


def containers_of(engine: Engine) -> list[str]:
    """Every container of an engine, also those that a build works in."""
    if isinstance(engine, DockerEngine):
        return [item["Id"] for item in engine._client.containers(all=True)]
    assert isinstance(engine, PodmanEngine)
    listed = engine._api._client.api.get("/containers/json", params={"all": "true", "external": "true"})
    return [item["Id"] for item in listed.json()]


def eventually(fact: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def interfaces(table: str) -> set[str]:
    return {line.partition(":")[0].strip() for line in table.splitlines() if ":" in line}


def test_an_engine_says_what_it_is(engine: Engine) -> None:
    info = engine.info()
    assert info.name == engine.name
    assert info.server_version[0].isdigit()
    assert info.api_version[0].isdigit()
    assert info.storage_driver
    assert info.storage_root.startswith("/")
    assert info.address.startswith("unix://")


def test_a_build_step_sees_the_loopback_interface_and_no_other(engine: Engine, tmp_path: Path) -> None:
    host = interfaces(Path("/proc/net/dev").read_text())
    assert host > {"lo"}, "this machine has no other interface, so the test could not fail"
    context = write_context(tmp_path / "c", 'RUN ["/bin/busybox", "cat", "/proc/net/dev"]')
    _, lines = build(engine, context, use_cache=False)
    table = [line for line in lines if "lo:" in line or any(f"{name}:" in line for name in host)]
    assert interfaces("\n".join(table)) == {"lo"}


def test_a_build_step_gets_no_proxy_of_the_callers(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    _, lines = build(engine, write_context(tmp_path / "c", 'RUN ["/bin/busybox", "env"]'), use_cache=False)
    assert any(line.startswith("HOME=") for line in lines)
    assert not [line for line in lines if "proxy" in line.lower()]


def test_log_lines_come_while_the_build_runs(engine: Engine, tmp_path: Path) -> None:
    script = "echo first-line; sleep 2; echo second-line"
    context = write_context(tmp_path / "c", f'RUN ["/bin/busybox", "sh", "-c", "{script}"]')
    seen: dict[str, float] = {}

    def note(line: str) -> None:
        seen[line] = time.monotonic()

    engine.build(context, tag=None, labels={}, use_cache=False, on_line=note)
    assert seen["second-line"] - seen["first-line"] > 1


def test_a_failing_step_is_named_with_what_it_printed_and_leaves_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    before = containers_of(engine)
    context = write_context(
        tmp_path / "c",
        'RUN ["/bin/busybox", "true"]',
        'RUN ["/bin/busybox", "sh", "-c", "echo what-went-wrong >&2; exit 7"]',
    )
    with pytest.raises(BuildError) as caught:
        build(engine, context)
    assert "exit 7" in caught.value.step
    assert "what-went-wrong" in caught.value.log_tail
    assert "what-went-wrong" in str(caught.value)
    assert caught.value.exit_code == 1
    assert containers_of(engine) == before


def test_the_container_of_a_failing_step_is_kept_where_asked(engine: Engine, tmp_path: Path) -> None:
    before = containers_of(engine)
    context = write_context(
        tmp_path / "c", 'RUN ["/bin/busybox", "sh", "-c", "echo evidence > /left; exit 7"]'
    )
    with pytest.raises(BuildError) as caught:
        build(engine, context, keep=True)
    assert caught.value.kept
    for kept in caught.value.kept:
        assert [item for item in containers_of(engine) if item.startswith(kept)]
        assert kept in (caught.value.hint or "")
        engine.remove_container(kept)
    assert containers_of(engine) == before


def test_a_broken_dockerfile_is_a_build_error(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPPY a b\n")
    with pytest.raises(BuildError, match=r"(?i)coppy"):
        build(engine, tmp_path)


def test_layers_are_reused_whatever_the_times_and_modes_of_the_files(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    context = write_context(folder, "COPY data /data", 'RUN ["/bin/busybox", "sh", "-c", "date +%N > /made"]')
    (folder / "data").write_text(f"{time.time()}")
    first, _ = build(engine, context)
    (folder / "data").chmod(0o600)
    os.utime(folder / "data", (1, 1))
    again, _ = build(engine, context)
    assert again == first
    fresh, _ = build(engine, context, use_cache=False)
    assert fresh != first


def test_a_built_image_has_its_name_and_carries_labels(engine: Engine, tmp_path: Path) -> None:
    made, _ = build(engine, write_context(tmp_path / "c"), tag="capsule-test/named:1", labels={"a.b": "c d"})
    assert engine.has_image("capsule-test/named:1")
    if isinstance(engine, DockerEngine):
        labels = engine._client.inspect_image(made)["Config"]["Labels"]  # type: ignore[no-untyped-call]
    else:
        assert isinstance(engine, PodmanEngine)
        labels = engine._api._client.api.get(f"/images/{made}/json").json()["Labels"]
    assert {"a.b": "c d", LABEL: "1"}.items() <= labels.items()
    engine.remove_image("capsule-test/named:1")
    assert not engine.has_image("capsule-test/named:1")
    engine.remove_image("capsule-test/named:1")


def test_pruning_removes_what_carries_the_label_and_nothing_else(
    engine: Engine, bare_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under a label of its own: what carries the project's is kept from one run of the tests to the next.
    label = f"{LABEL}.pruning"
    for module in ("docker", "podman"):
        monkeypatch.setattr(f"capsule_build.engine.{module}.LABEL", label)
    context = write_context(tmp_path / "c", 'RUN ["/bin/busybox", "sh", "-c", "date +%N > /made"]')
    dockerfile = context / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(LABEL, label))
    first, _ = build(engine, context)
    assert build(engine, context)[0] == first
    engine.prune_build_cache()
    assert not engine.has_image(first)
    assert engine.has_image(bare_image)
    assert build(engine, context)[0] != first


_LARGE = """
import sys
from pathlib import Path
from capsule_build.engine import ContainerSpec, container, select_engine
name, context = sys.argv[1:]
with select_engine(name, say=print) as engine:
    image = engine.build(Path(context), tag=None, labels={}, use_cache=False, on_line=lambda line: None)
    with container(engine, ContainerSpec(image=image, argv=("/none",))) as made:
        total = sum(len(chunk) for chunk in engine.copy_out(made, "/large"))
        with open(Path(context) / "copy.tar", "wb") as copy:
            copy.writelines(engine.copy_out(made, "/large"))
        with open(Path(context) / "copy.tar", "rb") as copy:
            engine.copy_in(made, "/", iter(lambda: copy.read(65536), b""))
    engine.remove_image(image)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(total, int(peak) // 1024)
"""


def test_a_large_context_and_archive_pass_through_little_memory(engine: Engine, tmp_path: Path) -> None:
    size = 200 << 20
    context = tmp_path / "c"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY large /large\n")
    with (context / "large").open("wb") as stream:
        stream.truncate(size)
    result = subprocess.run(
        [sys.executable, "-c", _LARGE, engine.name, str(context)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    total, peak_mebibytes = map(int, result.stdout.split())
    assert total >= size
    assert peak_mebibytes < 150


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


_BUILD = """
import sys
from pathlib import Path
from capsule_build.engine import select_engine
with select_engine(sys.argv[1], say=print) as engine:
    engine.build(Path(sys.argv[2]), tag=None, labels={}, use_cache=False, on_line=print)
"""


def test_an_interrupted_build_leaves_no_container_and_no_process(engine: Engine, tmp_path: Path) -> None:
    check_that_a_build_ends(engine, tmp_path, signal.SIGINT)


def test_docker_ends_a_build_whose_caller_was_killed(docker_engine: Engine, tmp_path: Path) -> None:
    check_that_a_build_ends(docker_engine, tmp_path, signal.SIGKILL)


def check_that_a_build_ends(engine: Engine, tmp_path: Path, ending: signal.Signals) -> None:
    before = containers_of(engine)
    seconds = str(98762 + ending)
    context = write_context(tmp_path / "c", f'RUN ["/bin/busybox", "sleep", "{seconds}"]')
    child = subprocess.Popen(
        [sys.executable, "-c", _BUILD, engine.name, str(context)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: bool(processes_with(seconds)), 60)
        child.send_signal(ending)
        _, stderr = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    if ending is signal.SIGINT:
        assert b"KeyboardInterrupt" in stderr
    assert eventually(lambda: not processes_with(seconds))
    assert eventually(lambda: containers_of(engine) == before)


def test_podmans_service_and_its_files_last_as_long_as_the_connection(podman_environment: None) -> None:
    with select_engine("podman", say=print) as opened:
        address = opened.info().address
        folder = Path(address.removeprefix("unix://")).parent
        assert processes_with(address)
        assert folder.stat().st_mode & 0o077 == 0
    assert eventually(lambda: not processes_with(address))
    assert not folder.exists()


def test_podmans_service_ends_when_its_caller_is_killed(podman_environment: None) -> None:
    script = (
        "import time\nfrom capsule_build.engine import select_engine\n"
        "with select_engine('podman', say=print) as engine:\n"
        "    print(engine.info().address, flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        assert processes_with(address)
        child.kill()
    assert eventually(lambda: not processes_with(address))
    folder = Path(address.removeprefix("unix://")).parent
    os.utime(folder, (1, 1))
    with select_engine("podman", say=print):
        assert not folder.exists(), "the next run removes what a killed one left"


def test_an_explicit_choice_never_falls_back(
    podman_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    said: list[str] = []
    with (
        pytest.raises(Exception, match=r"daemon is not running: there is no socket /nowhere/docker.sock"),
        select_engine("docker", say=said.append),
    ):
        pass
    assert said == []
    # Both doctors say the same.
    told = _engine("docker")
    assert told.found == "Docker's daemon is not running: there is no socket /nowhere/docker.sock."
    assert told.status == "warn"
    with select_engine(None, say=said.append) as opened:
        assert opened.name == "podman"
    assert len(said) == 1
    assert "Docker" in said[0]
    assert said[0].endswith("Podman is used.")


def test_the_podman_socket_is_not_taken_for_docker(
    podman_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", podman_engine.info().address)
    with pytest.raises(Exception, match="is Podman, not Docker"), select_engine("docker", say=print):
        pass


def test_a_running_podman_service_is_used_where_container_host_names_it(
    podman_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = podman_engine.info().address
    monkeypatch.setenv("CONTAINER_HOST", address)
    with select_engine("podman", say=print) as opened:
        assert opened.info().address == address
    assert json.dumps(podman_engine.has_image("capsule-test/none:1")) == "false", "its own service goes on"
