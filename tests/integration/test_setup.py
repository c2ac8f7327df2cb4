"""A harness's set-up in containers: found, installed, sealed, run; and what it says when it can't.

The real agents are in test_agents.py.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from capsule_build.runtime import InputError, SetUp, SetUpError, installed, seal
from tests import images
from tests.integration.containers import podman_limits
from tests.integration.decoys import write_decoys, write_victim
from tests.integration.harnesses import TOY, VERSION, Supply, start, toy_package, toy_wheel
from tests.servers import Site, body, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from capsule_build.engine import Engine
    from capsule_build.runtime import Environment, Result
    from tests.integration.capsules import Capsules
    from tests.integration.pythons import PythonCapsules

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
__all__ = ["podman_limits"]

NPM: Final = {"install_command": f"npm install -g /toys/{TOY}.tgz", "check_command": f"{TOY} --version"}
PIP: Final = {"install_command": f"pip install {TOY}", "check_command": TOY}
PROGRAM: Final = Path("/usr/bin/true")
"""A program of this machine, for its own glibc: older or other images can't start it."""

NODE_TAG: Final = "node24-v1"
PYTHON_TAG: Final = "python312-v1"
QUICKLY: Final = {"npm_config_fetch_retries": "0", "PIP_RETRIES": "1", "PIP_TIMEOUT": "2"}


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    # Another user in a container reads it, too.
    folder.chmod(0o755)
    toy_package(folder, PROGRAM)
    toy_package(folder, PROGRAM, fetches=True)
    return folder


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The only address of every bundle. It has none; it remembers who asked."""
    with serve() as running:
        yield running


@pytest.fixture
def asked(site: Site) -> list[str]:
    """What the server is asked in this test."""
    site.asked.clear()
    return site.asked


@pytest.fixture(scope="module")
def glibc(capsules: Capsules, tmp_path_factory: pytest.TempPathFactory, site: Site) -> Supply:
    bundle = capsules.built("podman", "glibc").path
    return Supply(bundle, NODE_TAG, tmp_path_factory.mktemp("supply"), site.url)


@pytest.fixture(scope="module")
def musl(capsules: Capsules, tmp_path_factory: pytest.TempPathFactory, site: Site) -> Supply:
    bundle = capsules.built("podman", "musl").path
    return Supply(bundle, NODE_TAG, tmp_path_factory.mktemp("supply"), site.url)


@pytest.fixture(scope="module")
def python(python_capsules: PythonCapsules, tmp_path_factory: pytest.TempPathFactory, site: Site) -> Supply:
    bundle = python_capsules.built("glibc").path
    return Supply(bundle, PYTHON_TAG, tmp_path_factory.mktemp("supply"), site.url)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def with_toys(toys: Path, *options: str) -> tuple[str, ...]:
    return (f"--volume={toys}:/toys:ro", *options)


class With:
    """An environment whose programs meet other variables, as if the container's configuration had them."""

    def __init__(self, inner: Environment, variables: Mapping[str, str]) -> None:
        self._inner = inner
        self._variables = variables
        self.name, self.identity = inner.name, inner.identity
        self.put, self.put_tree = inner.put, inner.put_tree

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any) -> Result:
        return self._inner.run(argv, env={**self._variables, **(env or {})}, **options)


def variables_of(environment: Environment, kind: str) -> dict[str, str]:
    """What a program of the image's own finds in its environment."""
    cat = ["/bin/cat"] if kind in images.SUITES else ["/bin/busybox", "cat"]
    said = environment.run([*cat, "/proc/self/environ"]).stdout.decode()
    return {entry.partition("=")[0]: entry.partition("=")[2] for entry in said.split("\0") if entry}


@pytest.mark.parametrize(("name", "kind"), [("podman", "bare"), ("docker", "bullseye")])
def test_a_harness_lives_in_the_images_own_environment(
    request: pytest.FixtureRequest,
    stack: contextlib.ExitStack,
    toys: Path,
    glibc: Supply,
    name: str,
    kind: str,
    asked: list[str],
) -> None:
    environment = start(request.getfixturevalue(f"{name}_engine"), kind, stack, *with_toys(toys))
    done = glibc.set_up(environment, NPM)
    assert (done.is_new, done.path) == (True, f"{done.setup_root}/bin/{TOY}")
    assert done.seal is not None
    assert done.seal.failures == ()
    # Its package's own script started another package's command: with nothing to start it by in a bare image.
    assert environment.run([done.path, "--version"]).text == f"{VERSION}\n"
    shell = [note for note in done.notes if "SHELL=" in note]
    assert bool(shell) == (kind == "bare")

    report = json.loads(environment.run([done.path, "report"]).stdout)
    assert report["variables"] == variables_of(environment, kind)
    capsule = installed(NODE_TAG, environment, registry=glibc.registry)
    assert capsule is not None
    assert report["exe"] == f"{capsule.root}/runtime/node/bin/node"
    assert report["commands"] == ""
    assert report["cat"] in ("cat\n", "/usr/bin/cat\n")

    # What it installs later isn't sealed, until that is asked for.
    assert environment.run([done.path, "lazy"]).text in ("ENOENT\n", "status 1\n")
    assert len(seal(capsule, environment).interpreters) == 1
    assert environment.run([done.path, "lazy"]).text == "status 0\n"

    with pytest.raises(SetUpError, match="fetched-tool") as caught:
        glibc.set_up(
            environment,
            {**NPM, "install_command": f"npm i -g /toys/{TOY}-fetching.tgz", "entrypoint": "none"},
        )
    assert "can't start here before it is sealed" in str(caught.value.hint)
    assert asked == []


def test_a_harness_that_is_there_costs_no_request(
    podman_engine: Engine,
    stack: contextlib.ExitStack,
    toys: Path,
    glibc: Supply,
    asked: list[str],
    tmp_path: Path,
) -> None:
    environment = start(podman_engine, "bare", stack, *with_toys(toys))
    preinstalled = {"install_strategy": "preinstalled", "entrypoint": TOY}
    with pytest.raises(SetUpError, match=f"'{TOY}' is not there in the image's PATH"):
        glibc.set_up(environment, preinstalled, empty=True)
    assert asked == []
    with pytest.raises(InputError):
        glibc.set_up(environment, NPM, empty=True)
    # The server is asked where a bundle is needed: that it wasn't means something.
    assert asked != []
    asked.clear()

    # In the image: nothing is asked for, installed or written.
    environment.run(
        ["/bin/sh", "-c", f"mkdir -p /usr/bin; ln -s /bin/busybox /usr/bin/{TOY}; ln -s busybox /bin/true"]
    )
    environment.put(b"#!/bin/sh\n", f"/usr/bin/{TOY}", 0o755)
    for document in (preinstalled, NPM, {**NPM, "entrypoint": f"/usr/bin/{TOY}", "check_command": "true"}):
        done = glibc.set_up(environment, document, empty=True)
        assert (done.path, done.is_new, done.sha256, done.seal) == (f"/usr/bin/{TOY}", False, None, None)
    assert environment.run(["/bin/sh", "-c", "ls /tmp"]).stdout == b""
    environment.run(["/bin/sh", "-c", f"rm /usr/bin/{TOY}"])

    # In the setup root: the bundle that is in the store is enough, and then not even that is needed.
    first = glibc.set_up(environment, NPM)
    for document in (preinstalled, NPM):
        done = glibc.set_up(environment, document, empty=True)
        assert (done.path, done.is_new, done.sha256) == (first.path, False, first.sha256)
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/own").write_text("#!/usr/bin/env node\nconsole.log('uploaded')\n")
    (tree / "bin/own").chmod(0o755)
    uploaded = {"install_strategy": "upload", "upload": str(tree), "entrypoint": "own"}
    for document in ({**NPM, "install_strategy": "install"}, uploaded):
        again = glibc.set_up(environment, document, empty=True)
        assert (again.is_new, again.sha256) == (True, first.sha256)
    assert environment.run([again.path]).text == "uploaded\n"
    assert asked == []


def test_two_setups_at_once_in_one_container_give_one(
    docker_engine: Engine, stack: contextlib.ExitStack, toys: Path, glibc: Supply
) -> None:
    environment = start(docker_engine, "bullseye", stack, *with_toys(toys))
    done: list[SetUp] = []
    threads = [threading.Thread(target=lambda: done.append(glibc.set_up(environment, NPM))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.is_new for one in done) == [False, True]
    assert len({one.path for one in done}) == 1

    # While one is at it: a command that hangs is ended in the container, too.
    begun = time.monotonic()
    hanging = {"install_command": "echo begun; sleep 987", "entrypoint": "none", "install_timeout": 2}
    with pytest.raises(SetUpError, match=r"didn't end within 2 s[\s\S]*begun"):
        glibc.set_up(environment, hanging)
    assert time.monotonic() - begun < 60
    script = "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$one; echo; done 2>/dev/null"
    lines = environment.run(["/bin/sh", "-c", script]).text.splitlines()
    assert lines
    assert [line for line in lines if line.startswith("sleep 987")] == []


def test_variables_that_lead_astray_do_no_harm(
    docker_engine: Engine, stack: contextlib.ExitStack, toys: Path, glibc: Supply, tmp_path: Path
) -> None:
    write_decoys(tmp_path, "glibc")
    for decoy in tmp_path.iterdir():
        # The image's own programs take their libc from there; what a capsule brings is what this is about.
        if decoy.name not in ("libstdc++.so.6", "libgcc_s.so.1", "libz.so.1"):
            decoy.unlink()
    variables = {
        "PATH": "",
        "HOME": "/proc",
        "LD_LIBRARY_PATH": "/decoys",
        "PYTHONHOME": "/none",
        "PYTHONPATH": "/none",
        "NPM_CONFIG_PREFIX": "/usr/none",
        "PIP_TARGET": "/none",
    }
    options = [f"--env={name}={value}" for name, value in variables.items()]
    options += with_toys(toys, f"--volume={tmp_path}:/decoys:ro")
    environment = start(docker_engine, "bullseye", stack, *options, command=("/bin/sleep", "infinity"))
    done = glibc.set_up(environment, NPM)
    assert environment.run([done.path, "--version"]).text == f"{VERSION}\n"
    assert environment.run(["/bin/sh", "-c", "[ -e /usr/none ]"]).code == 1
    found = json.loads(environment.run([done.path, "report"]).stdout)["variables"]
    assert {name: found[name] for name in variables} == variables


def test_a_variable_that_breaks_a_harness_is_named(
    podman_engine: Engine, stack: contextlib.ExitStack, toys: Path, glibc: Supply, tmp_path: Path
) -> None:
    write_victim(tmp_path, "musl")
    environment = start(podman_engine, "bare", stack, *with_toys(toys, f"--volume={tmp_path}:/foreign:ro"))
    for name, value in (("NODE_OPTIONS", "--require=/none"), ("LD_PRELOAD", "/foreign/libz.so.1")):
        with pytest.raises(SetUpError, match="is installed, but doesn't work") as caught:
            glibc.set_up(With(environment, {name: value, "PYTHONHOME": "/none"}), NPM)
        assert f"because of {name}='{value}'" in str(caught.value.hint)
    assert glibc.set_up(environment, NPM).is_new


def test_a_python_harness_lives_in_the_setup_roots_venv(
    podman_engine: Engine, stack: contextlib.ExitStack, python: Supply, tmp_path: Path
) -> None:
    toy_wheel(tmp_path)
    local = {**PIP, "install_command": f"pip install --no-index --find-links /wheels {TOY}"}
    environment = start(podman_engine, "bare", stack, f"--volume={tmp_path}:/wheels:ro")
    with pytest.raises(SetUpError, match="No module named 'encodings'") as caught:
        python.set_up(With(environment, {"PYTHONHOME": "/none", "PIP_TARGET": "/none"}), local)
    assert "because of PYTHONHOME='/none'" in str(caught.value.hint)
    done = python.set_up(With(environment, {"PYTHONPATH": "/none", "PIP_TARGET": "/none"}), local)
    variables, executable, module = json.loads(environment.run([done.path]).stdout)
    assert variables == variables_of(environment, "bare")
    assert executable.startswith(f"{done.setup_root}/bin/python")
    assert module.startswith(f"{done.setup_root}/lib/python3.")


def test_a_user_without_name_and_home_sets_up(
    podman_engine: Engine, stack: contextlib.ExitStack, toys: Path, musl: Supply
) -> None:
    environment = start(podman_engine, "musl", stack, *with_toys(toys, "--user=12345:54321", "--env=HOME="))
    done = musl.set_up(environment, NPM)
    assert environment.run([done.path, "--version"]).text == f"{VERSION}\n"
    listed = environment.run(["/bin/sh", "-c", f"ls -ldn {done.setup_root}/lib/node_modules/{TOY}"]).text
    assert listed.split()[2:4] == ["12345", "54321"]


def test_an_unreachable_registry_is_said_with_the_ways_that_need_none(
    podman_engine: Engine,
    stack: contextlib.ExitStack,
    toys: Path,
    glibc: Supply,
    python: Supply,
    tmp_path: Path,
) -> None:
    environment = start(podman_engine, "bare", stack, *with_toys(toys))
    nowhere = {
        **QUICKLY,
        "npm_config_registry": "http://127.0.0.1:9/",
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
    }
    with pytest.raises(SetUpError, match="ECONNREFUSED") as caught:
        glibc.set_up(environment, {**NPM, "install_command": f"npm install -g {TOY}", "install_env": nowhere})
    for way in ("npm_cache", "wheelhouse", "install command", "preinstalled", "upload"):
        assert way in str(caught.value.hint)

    other = start(podman_engine, "bare", stack)
    with pytest.raises(SetUpError, match="failed with status") as caught:
        python.set_up(other, {**PIP, "install_env": nowhere})
    assert "The package registry can't be reached" in str(caught.value.hint)
    # The first of these ways, in the same container.
    wheel = toy_wheel(tmp_path)
    done = python.set_up(other, {**PIP, "install_env": nowhere, "wheelhouse": str(wheel.parent)})
    assert json.loads(other.run([done.path]).stdout)[2].startswith(done.setup_root)
    left = other.run(["/bin/sh", "-c", f"ls -A {done.setup_root}"]).text.split()
    assert ".wheelhouse" not in left


def test_a_filled_npm_cache_stands_in_for_the_registry(
    podman_engine: Engine, stack: contextlib.ExitStack, toys: Path, glibc: Supply, site: Site, tmp_path: Path
) -> None:
    package = (toys / f"{TOY}.tgz").read_bytes()
    manifest = {
        "name": TOY,
        "version": VERSION,
        "bin": {TOY: "toy.js"},
        "bundleDependencies": ["helper"],
        "dependencies": {"helper": "1.0.0"},
        "hasInstallScript": True,
        "dist": {
            "tarball": f"{site.url}{TOY}.tgz",
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode(),
        },
    }
    document = {"name": TOY, "dist-tags": {"latest": VERSION}, "versions": {VERSION: manifest}}
    site.answers[f"/{TOY}"] = body(json.dumps(document).encode())
    site.answers[f"/{TOY}.tgz"] = body(package)
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = start(podman_engine, "bare", stack, f"--volume={cache}:/cache", network="host")
    wanted = {
        **NPM,
        "install_command": f"npm install -g {TOY}@{VERSION}",
        "install_env": {"npm_config_registry": site.url, **QUICKLY},
    }
    fill = {**wanted, "install_command": f"npm install -g --cache=/cache {TOY}@{VERSION}"}
    assert glibc.set_up(environment, fill).is_new
    assert f"/{TOY}.tgz" in site.asked

    offline = start(podman_engine, "bare", stack)
    with pytest.raises(SetUpError, match="Four ways need no registry"):
        glibc.set_up(offline, wanted)
    done = glibc.set_up(offline, {**wanted, "npm_cache": str(cache)})
    assert offline.run([done.path, "--version"]).text == f"{VERSION}\n"
