"""What Python bundles are: the same from both engines, complete, and honest about what they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.overhead import LIMIT_BYTES, added
from capsule_build.runtime.process import run
from tests import images
from tests.integration.capsules import cli, cli_json, run_in, said
from tests.integration.ground import assert_one_error
from tests.integration.pythons import NAMES, PythonCapsules, installed_prefix, origin_answers
from tests.integration.sboms import check_true

if TYPE_CHECKING:
    from capsule_build.engine import Engine

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", ["glibc", "musl", pytest.param("both", marks=pytest.mark.matrix)])
def test_both_engines_make_the_same_bytes(python_capsules: PythonCapsules, name: str) -> None:
    by_podman = python_capsules.built(name, "podman")
    by_docker = python_capsules.built(name, "docker")
    assert by_docker.sha256 == by_podman.sha256
    assert by_docker.path.read_bytes() == by_podman.path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_keeps_the_contract_and_says_what_it_is(python_capsules: PythonCapsules, name: str) -> None:
    capsule = python_capsules.built(name)
    how = capsule.made
    checked = cli("check", capsule.path)
    assert checked.code == 0, checked.error_text
    shown = cli_json("inspect", capsule.path)
    assert shown["runtime"] == {"id": how.recipe, "version": how.version}
    assert shown["install_root"] == how.root
    tools = {"python", "python3", "pip", "seal-tree"}
    assert set(shown["tools"]) == tools | ({"node", "npm", "npx", "uv", "uvx"} if name == "both" else set())
    assert {tool["passed"] for tool in capsule.said["smoke"]} == {True}
    assert len(capsule.said["smoke"]) == len(shown["tools"]) + 1


@pytest.mark.parametrize(
    ("name", "engine", "kind"), [("both", "podman", "bullseye"), ("musl", "docker", "bare")]
)
def test_the_command_tries_a_bundle_in_an_image(
    request: pytest.FixtureRequest, python_capsules: PythonCapsules, name: str, engine: str, kind: str
) -> None:
    opened: Engine = request.getfixturevalue(f"{engine}_engine")
    tried = cli(
        "test", python_capsules.built(name).path, images.image(opened, kind), "--container-cli", engine
    )
    assert tried.code == 0, tried.error_text


@pytest.mark.parametrize("name", NAMES)
def test_every_component_has_its_licence_texts_or_says_that_they_are_missing(
    python_capsules: PythonCapsules, name: str
) -> None:
    tree = python_capsules.tree(name)
    data = (tree / "share/sbom.cdx.json").read_bytes()
    check_true(data, tree)
    for component in json.loads(data)["components"]:
        files = [Path(item["name"]) for item in component["components"]]
        texts = sorted(path.name for path in files if path.is_relative_to("share/licenses"))
        assert texts, component["name"]
        if component["name"] != "cpython":
            continue
        assert "LICENSE.txt" in texts
        marks = {item["name"]: item["value"] for item in component["properties"]}
        own = python_capsules.built(name).made.own_origin
        assert ("MISSING.txt" in texts) == (not own)
        assert marks.get("capsule:licence-texts") == (None if own else "incomplete")


def test_a_source_is_recorded_as_an_override_with_its_digest(python_capsules: PythonCapsules) -> None:
    capsule = python_capsules.built("glibc")
    if capsule.made.own_origin:
        pytest.skip("CPython's own origin answers: nothing was overridden")
    record = json.loads(capsule.path.with_name(capsule.path.name + ".build.json").read_bytes())
    assert record["overrides"] == ["cpython"]
    (entry,) = [item for item in record["inputs"] if item["name"] == "cpython"]
    assert (entry["origin"], entry["version"], entry["reference"]) == ("source", capsule.made.python, None)
    assert len(entry["sha256"]) == 64


def test_upstreams_archive_is_most_of_a_bundle(python_capsules: PythonCapsules) -> None:
    """The limit is on what a capsule adds: private C libraries, tools, licences, time zones, bytecode."""
    for name in NAMES:
        capsule = python_capsules.built(name)
        extra = added(capsule.path)
        assert extra < LIMIT_BYTES, f"{name}: {extra} bytes beside upstream's archives and bytecode"


def test_an_installed_prefix_becomes_a_capsule_with_the_libraries_that_it_links_to(
    podman_engine: Engine, input_cache: Path, tmp_path: Path
) -> None:
    prefix = installed_prefix()
    path = tmp_path / "prefix.tar.gz"
    options = ("--python-version", prefix.name, "--container-cli", "podman", "--newer-pins")
    (bundle,) = cli_json("python3.12", path, "--source", f"cpython={prefix}", *options)["bundles"]
    tree = tmp_path / "tree"
    tree.mkdir()
    run(["tar", "--extract", "--file", str(path), "--directory", str(tree)])
    root = f"/tmp/agentcompass-capsules/python3.12-{prefix.name}-{bundle['platform']}"
    program = "import ctypes, sqlite3, ssl, lzma, bz2, readline, sys; print(sys.prefix)"
    outcome = run_in(
        podman_engine,
        images.image(podman_engine, "bare"),
        *(f"{root}/bin/python", "-c", program),
        binds=((str(tree), root, "ro"),),
    )
    assert outcome.stdout.decode().strip() == f"{root}/runtime/python", said(outcome)
    texts = {item.name for item in (tree / "share/licenses/cpython").iterdir()}
    assert {"LICENSE.txt", "LICENSE.libssl.so.3.txt", "LICENSE.libsqlite3.so.0.txt"} <= texts


@pytest.mark.parametrize(
    ("recipe", "component"), [("python3.12", "cpython"), ("python3.12-node24", "cpython")]
)
def test_musl_recipes_of_python_3_12_go_as_far_as_their_pinned_archive(recipe: str, component: str) -> None:
    planned = cli_json("plan", recipe, "--libc", "musl")
    (runtime,) = [item for item in planned["inputs"] if item["name"] == component]
    assert (
        runtime["file"] == "cpython-3.12.10+20250529-x86_64-unknown-linux-musl-install_only_stripped.tar.gz"
    )
    assert runtime["sha256"] == "ebcb774652aeaa10c8b9a5825be257e7b21b604aac1bac2d3f6f1403de116ce8"
    (texts,) = [item for item in planned["inputs"] if item["role"] == "texts"]
    assert texts["sha256"] == "b781f551a1bab2ef8ad70d5fc1e963a055bb530037f4cf86a75e94ac6d21bcf7"


@pytest.mark.parametrize(("recipe", "libc"), [("python3.12", "musl"), ("python3.13", "glibc")])
def test_an_origin_that_cant_be_reached_is_one_error_that_names_the_ways_round_it(
    podman_engine: Engine, input_cache: Path, tmp_path: Path, recipe: str, libc: str
) -> None:
    if origin_answers():
        pytest.skip("CPython's own origin answers")
    arguments = (recipe, tmp_path / "bundle.tar.gz", "--libc", libc, "--container-cli", "podman")
    failed = cli(*arguments, "--newer-pins")
    assert_one_error(failed, 3, "--source cpython", "=PATH", "CAPSULE_SOURCE_MIRROR")
    assert list(tmp_path.iterdir()) == []
