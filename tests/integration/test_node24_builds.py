"""The same pins give the same bytes: from both engines, and on a machine where everything else differs."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.resources import recipes_dir, registry_lock
from capsule_build.runtime.files import sha256_file
from capsule_build.runtime.platforms import Platform
from capsule_build.runtime.process import run
from capsule_build.runtime.registry import load_registry
from tests import images
from tests.integration.capsules import (
    BUILD_SECONDS,
    ENGINES,
    LIBCS,
    NODE,
    NPM,
    changed_environment,
    cli,
    cli_json,
    install_root,
    platform,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("libc", LIBCS)
def test_docker_and_podman_make_the_same_bytes(capsules: Capsules, libc: str) -> None:
    docker, podman = (capsules.built(engine, libc) for engine in ENGINES)
    assert sha256_file(docker.path) == docker.sha256
    assert sha256_file(podman.path) == podman.sha256
    assert docker.sha256 == podman.sha256


@pytest.mark.parametrize("libc", LIBCS)
def test_a_bundle_is_the_one_that_the_registry_lock_names(capsules: Capsules, libc: str) -> None:
    capsule = capsules.built("podman", libc)
    assert capsule.record["overrides"] == [], "pins are gone from the mirror: 'capsule-build pins update'"
    registry = load_registry(registry_lock())
    assert "node24-v1" in registry.capsules, "the lock names no node24: 'make lock'"
    named = registry.capsules["node24-v1"]
    variant = named.variants[Platform(os.uname().machine, libc)]
    assert (named.runtime_id, named.runtime_version) == ("node24", NODE)
    assert variant.filename == capsule.path.name
    assert variant.size == capsule.path.stat().st_size
    assert variant.sha256 == capsule.sha256


@pytest.mark.parametrize("libc", LIBCS)
def test_the_manifest_is_the_first_member_and_exactly_the_contracts(capsules: Capsules, libc: str) -> None:
    with tarfile.open(capsules.built("podman", libc).path, "r|gz") as archive:
        first = archive.next()
        assert first is not None
        assert first.name == "agentcompass-capsule.json"
        stream = archive.extractfile(first)
        assert stream is not None
        assert json.loads(stream.read()) == {
            "schema_version": "agentcompass.capsule.v1",
            "runtime": {"id": "node24", "version": NODE},
            "platform": {"os": "linux", "architecture": os.uname().machine, "libc": libc},
            "install_root": f"/tmp/agentcompass-capsules/node24-{NODE}-linux-{os.uname().machine}-{libc}",
            "launcher": "bin/capsule-exec",
            "tools": {
                "node": "bin/node",
                "npm": "bin/npm",
                "npx": "bin/npx",
                "seal-tree": "bin/seal-tree",
            },
        }


@pytest.mark.parametrize("libc", LIBCS)
def test_members_say_nothing_of_who_built_them_and_when(capsules: Capsules, libc: str) -> None:
    with tarfile.open(capsules.built("docker", libc).path) as archive:
        members = archive.getmembers()
    names = [member.name for member in members[1:]]
    assert names == sorted(names, key=str.encode)
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}
    assert len({member.mtime for member in members}) == 1
    kinds = {(member.isdir(), member.issym(), oct(member.mode)) for member in members}
    assert kinds == {
        (True, False, "0o755"),
        (False, True, "0o777"),
        (False, False, "0o755"),
        (False, False, "0o644"),
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `capsule-build` of a wheel, installed in an environment outside of the checkout."""
    folder = tmp_path_factory.mktemp("installed")
    # Once for all: a wheel takes a minute, since the guests of tasks are made for it.
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(CHECKOUT)])
    (wheel,) = folder.glob("capsule_build-*.whl")
    home = folder / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(home)])
    python = home / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", str(wheel)])
    (packages,) = home.glob("lib/python*/site-packages")
    # What the wheel depends on is seen behind it: installing all of that again would test pip.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shown = run([str(python), "-I", "-c", "import capsule_build; print(capsule_build.__file__)"])
    assert shown.text.strip() == str(packages / "capsule_build" / "__init__.py")
    return home / "bin" / "capsule-build"


@pytest.fixture
def empty_podman(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables that point Podman at storage in which nothing is."""
    storage = tmp_path / "storage"
    storage.mkdir()
    configuration = storage / "storage.conf"
    configuration.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{storage}/root"\nrunroot = "{storage}/run"\n'
    )
    variables = {"CONTAINERS_STORAGE_CONF": str(configuration)}
    yield variables
    run(["podman", "rm", "--all", "--force"], env=changed_environment(variables), timeout=60)
    run(["podman", "rmi", "--all", "--force"], env=changed_environment(variables), timeout=60)
    # The storage's own folder stays mounted (overlay's private mount) until then.
    run(["umount", "--lazy", str(storage / "root" / "overlay")], check=False)


def test_an_installed_wheel_makes_the_same_bytes_where_everything_else_differs(
    capsules: Capsules, installed: Path, empty_podman: dict[str, str], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    environment = changed_environment(
        {
            **empty_podman,
            "PYTHONPATH": None,
            "TZ": "Asia/Kathmandu",
            "LANG": "tr_TR.UTF-8",
            "LC_ALL": "C",
            "SOURCE_DATE_EPOCH": "1",
            "PYTHONHASHSEED": "42",
        }
    )
    arguments = ["node24", "--libc", "musl", "--container-cli", "podman", "--newer-pins", "--json"]
    result = run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", str(installed), *arguments],
        env=environment,
        cwd=elsewhere,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert result.code == 0, result.error_text
    assert "cache" not in result.error_text.lower(), "the engine's storage was not empty"
    bundle = elsewhere / "dist" / f"node24-v1-{platform('musl')}.tar.gz"
    assert sha256_file(bundle) == capsules.built("docker", "musl").sha256
    made = {path.name.removeprefix(bundle.name): path for path in bundle.parent.iterdir()}
    assert set(made) == {"", ".build.json", ".cdx.json", ".provenance.json", ".sha256"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made.values()} == {0o644}


def test_a_record_says_what_was_asked_and_the_digest_of_every_input(capsules: Capsules) -> None:
    capsule = capsules.built("docker", "glibc")
    record = capsule.record
    assert record["bundle"] == {
        "filename": capsule.path.name,
        "sha256": capsule.sha256,
        "size": capsule.path.stat().st_size,
    }
    assert record["capsule"]["install_root"] == install_root("glibc")
    assert record["asked"]["recipe"] == "node24"
    assert record["asked"]["libc"] == "glibc"
    assert record["builder"]["engine"]["name"] == "docker"
    assert {"node", "libc6", "musl", "ziglang", "busybox-static"} <= {
        item["component"] for item in record["inputs"]
    }
    assert all(len(item["sha256"]) == 64 for item in record["inputs"])


@pytest.mark.parametrize("libc", LIBCS)
def test_check_finds_the_contract_kept(capsules: Capsules, libc: str) -> None:
    capsule = capsules.built("docker", libc)
    said = cli_json("check", capsule.path)
    assert said["ok"] is True
    assert said["sha256"] == capsule.sha256


@pytest.mark.parametrize("libc", LIBCS)
def test_inspect_shows_the_components_and_that_every_program_has_its_own_abi(
    capsules: Capsules, libc: str
) -> None:
    capsule = capsules.built("docker", libc)
    said = cli_json("inspect", capsule.path)
    versions = {item["name"]: item["version"] for item in said["components"]}
    assert versions["node"] == NODE
    assert versions["npm"] == NPM
    assert all(item["licenses"] for item in said["components"])
    abis = {item["name"]: item["abi"] for item in said["elf"]}
    assert abis["runtime/node/bin/node"] == libc
    assert abis["bin/capsule-exec"] == abis["bin/seal-tree"] == abis["libexec/bash"] == "static"
    shown = cli("inspect", capsule.path)
    assert shown.code == 0
    assert NODE in shown.text


def test_a_plan_names_what_the_build_then_takes(capsules: Capsules, tmp_path: Path) -> None:
    capsule = capsules.built("podman", "musl")
    said = cli_json("plan", "node24", tmp_path / "x.tar.gz", "--libc", "musl")
    planned = {(item["component"], item["role"]): item["sha256"] for item in said["inputs"]}
    taken = {(item["component"], item["role"]): item["sha256"] for item in capsule.record["inputs"]}
    assert planned == taken
    assert said["manifest"]["install_root"] == capsule.root


@pytest.mark.parametrize(
    ("engine_name", "libc", "kind"), [("docker", "glibc", "bookworm"), ("podman", "musl", "musl")]
)
def test_a_bundle_is_tried_in_the_users_own_image(
    capsules: Capsules, request: pytest.FixtureRequest, engine_name: str, libc: str, kind: str
) -> None:
    engine: Engine = request.getfixturevalue(f"{engine_name}_engine")
    image = images.image(engine, kind)
    said = cli_json("test", capsules.built(engine_name, libc).path, image, "--container-cli", engine_name)
    assert said["image"] == image
    printed = {item["tool"]: item["printed"] for item in said["tools"]}
    assert printed["node"] == f"v{NODE}"
    assert printed["npm"] == printed["npx"] == NPM
    assert set(printed) == {"node", "npm", "npx", "seal-tree", "capsule-exec"}


def test_all_builds_every_libc_and_lock_then_names_them(
    capsules: Capsules, installed: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    # Of one recipe: each of the others has its own tests.
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    for name in ("node24.toml", "components.toml", "pins.lock.json"):
        shutil.copyfile(recipes_dir() / name, recipes / name)
    place: dict[str, Any] = {"command": installed, "cwd": here, "env": {"PYTHONPATH": None}}
    options = ("--recipes", recipes, "--container-cli", "docker", "--newer-pins")
    said = cli_json("all", *options, **place)
    assert said["failures"] == []
    digests = {item["platform"]: item["sha256"] for item in said["bundles"]}
    assert digests == {platform(libc): capsules.built("podman", libc).sha256 for libc in LIBCS}
    lock = here / "registry.lock.json"
    made = cli("lock", "--lock", lock, "--dist", here / "dist", **place)
    assert made.code == 0, made.error_text
    variants = load_registry(lock).capsules["node24-v1"].variants
    assert {str(key): variant.sha256 for key, variant in variants.items()} == digests


def test_doctor_finds_both_engines_fit_for_builds(capsules: Capsules) -> None:
    result = cli("doctor", "--json")
    said: Any = json.loads(result.stdout)
    assert result.code == 0, result.text
    assert said
