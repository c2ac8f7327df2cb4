"""`tools/engines.sh setup`, in images that lack engines, with an apt-get that notes what it is asked."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.engine import ContainerSpec, Engine, Outcome, container

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]

SCRIPT = Path(__file__).parents[2] / "tools" / "engines.sh"
APT_GET = """#!/bin/sh
echo "apt-get $*"
if [ -x /usr/sbin/policy-rc.d ]; then echo "daemons may not start"; fi
"""


def set_up(
    engine: Engine, image: str, *arguments: str, user: str = "0", programs: tuple[str, ...] = ()
) -> Outcome:
    files = {"engines.sh": SCRIPT.read_bytes(), "opt/apt-get": APT_GET.encode()}
    files |= {f"opt/{name}": b"#!/bin/sh\n" for name in programs}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    spec = ContainerSpec(
        image,
        (
            "/bin/sh",
            "-c",
            'sh /engines.sh setup "$@"; code=$?; ls /usr/sbin/policy-rc.d; exit $code',
            "-",
            *arguments,
        ),
        env={"PATH": "/opt:/usr/bin:/bin"},
        user=user,
    )
    with container(engine, spec) as made:
        engine.copy_in(made, "/", [buffer.getvalue()])
        return engine.start(made, 60)


@pytest.mark.parametrize(
    ("arguments", "programs", "packages"),
    [
        ((), (), "podman runc"),
        (("--tests",), (), "podman docker.io runc"),
        (("--tests",), ("podman", "runc"), "docker.io"),
    ],
)
def test_what_is_missing_is_installed_after_saying_so(
    podman_engine: Engine,
    image: Callable[[Engine, str], str],
    arguments: tuple[str, ...],
    programs: tuple[str, ...],
    packages: str,
) -> None:
    outcome = set_up(podman_engine, image(podman_engine, "bookworm"), *arguments, programs=programs)
    said = outcome.stderr.decode()
    assert outcome.code == 0, said
    assert said.index(f"engines: installing {packages} ") < said.index("apt-get -q update")
    assert f"apt-get -q install --yes --no-install-recommends {packages}\ndaemons may not start\n" in said
    assert b"policy-rc.d" not in outcome.stdout, "it was not put back"


def test_nothing_is_installed_where_nothing_is_missing(
    podman_engine: Engine, image: Callable[[Engine, str], str]
) -> None:
    everything = ("podman", "runc", "dockerd")
    outcome = set_up(podman_engine, image(podman_engine, "bookworm"), "--tests", programs=everything)
    assert outcome.code == 0
    assert b"apt-get" not in outcome.stderr


def test_without_roots_rights_it_says_what_to_run(
    podman_engine: Engine, image: Callable[[Engine, str], str]
) -> None:
    outcome = set_up(podman_engine, image(podman_engine, "bookworm"), user="1000")
    assert outcome.code == 4
    assert b"sudo apt-get install --no-install-recommends podman runc" in outcome.stderr
    assert b"apt-get -q" not in outcome.stderr


def test_on_another_system_it_says_what_is_needed(
    podman_engine: Engine, image: Callable[[Engine, str], str]
) -> None:
    outcome = set_up(podman_engine, image(podman_engine, "musl"))
    assert outcome.code == 4
    assert b"needed: podman runc. Install them with this system's package manager." in outcome.stderr
