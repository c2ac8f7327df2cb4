"""What goes wrong with real engines and files: one message, its exit code, and the previous bundle intact."""

from __future__ import annotations

import contextlib
import os
import socket
import urllib.parse
from typing import TYPE_CHECKING

import pytest

from capsule_build.pins import load_pins
from capsule_build.resources import recipes_dir
from capsule_build.runtime.files import sha256_file
from capsule_build.runtime.process import run
from tests import images
from tests.integration.capsules import cli, platform
from tests.integration.ground import Ground, assert_one_error
from tests.servers import body, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from capsule_build.engine import Engine
    from tests.integration.capsules import Capsules

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(900)]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system: needs root")


@pytest.fixture
def ground(capsules: Capsules, docker_engine: Engine, input_cache: Path) -> Iterator[Ground]:
    """With Docker, whose layers of the musl capsule are there already."""
    capsules.built("docker", "musl")
    # Beside the inputs, so that the cache's files can be hard links.
    with images.scratch("ground-") as folder:
        yield Ground(folder, input_cache, docker_engine)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a file system in memory at `folder`."""
    folder.mkdir(exist_ok=True)
    run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)])
    try:
        yield folder
    finally:
        run(["umount", str(folder)])


# Engines


@pytest.mark.parametrize("listening", [False, True], ids=["no-socket", "nobody-listens"])
def test_a_chosen_engine_that_is_down_is_not_replaced_by_the_other(ground: Ground, listening: bool) -> None:
    dead = ground.folder / "s"
    if listening:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(dead))
    result = ground.build(env={"DOCKER_HOST": f"unix://{dead}"})
    assert_one_error(result, 4, "Docker's daemon", str(dead), "--container-cli podman")
    assert "Inputs" not in result.error_text
    ground.assert_untouched()


def test_without_any_engine_both_are_named_and_how_to_get_one(ground: Ground) -> None:
    empty = ground.folder / "empty"
    empty.mkdir()
    dead = f"unix://{ground.folder}/s"
    result = cli(
        *("node24", ground.output, "--libc", "musl"),
        env={**ground.variables, "DOCKER_HOST": dead, "PATH": str(empty)},
    )
    assert_one_error(
        result, 4, "Docker's daemon", "Podman is not installed", "apt-get install podman", "doctor"
    )
    ground.assert_untouched()


def test_without_a_choice_podman_takes_the_place_of_a_docker_that_is_down(
    capsules: Capsules, ground: Ground
) -> None:
    arguments = [word for word in ground.arguments() if word not in {"--container-cli", "docker"}]
    result = cli(*arguments, env={**ground.variables, "DOCKER_HOST": f"unix://{ground.folder}/s"})
    assert result.code == 0, result.error_text
    (line,) = [line for line in result.error_text.splitlines() if "Podman is used" in line]
    assert "Docker's daemon" in line
    assert sha256_file(ground.output) == capsules.built("docker", "musl").sha256


def test_a_step_that_fails_is_shown_with_the_end_of_its_log(ground: Ground) -> None:
    ground.add_step("echo the-compiler-says-why; exit 7")
    result = ground.build()
    assert_one_error(result, 1, "the-compiler-says-why", "7")
    ground.assert_untouched()


def test_a_failing_smoke_test_leaves_no_bundle(ground: Ground) -> None:
    ground.change("node24.toml", 'expect = "v{node}"', 'expect = "v{node}-other"')
    result = ground.build()
    assert_one_error(result, 1, "smoke", "node: expected 'v24.", "-other'", "got 'v24.")
    ground.assert_untouched()


# Inputs


def test_a_pin_that_vanished_from_the_mirror_names_the_ways_out(ground: Ground) -> None:
    (ground.cache / "sha256" / ground.digest_of("zlib1g")).unlink()
    with serve() as mirror:
        result = ground.build(env={"CAPSULE_DEBIAN_MIRROR": mirror.url, "CAPSULE_SOURCE_MIRROR": None})
        assert [path for path in mirror.asked if "zlib1g" in path]
    assert_one_error(result, 3, "zlib1g", "gone", "pins update", "CAPSULE_SOURCE_MIRROR", "--newer-pins")
    ground.assert_untouched()


def test_a_file_with_another_digest_gets_no_place(ground: Ground) -> None:
    digest = ground.digest_of("zlib1g")
    place = ground.cache / "sha256" / digest
    wrong = bytes(place.stat().st_size)
    place.unlink()
    (pin,) = {pin for pin in load_pins(recipes_dir() / "pins.lock.json").pins if pin.sha256 == digest}
    with serve() as mirror:
        mirror.answers["/" + urllib.parse.quote(pin.locator, safe="/~")] = body(wrong)
        result = ground.build(env={"CAPSULE_DEBIAN_MIRROR": mirror.url, "CAPSULE_SOURCE_MIRROR": None})
    assert_one_error(result, 3, "zlib1g", digest, "isn't the pinned file")
    assert not place.exists()
    ground.assert_untouched()


def test_half_a_download_gets_no_place_and_the_next_run_goes_on(
    capsules: Capsules, ground: Ground, input_cache: Path
) -> None:
    digest = ground.digest_of("zlib1g")
    place = ground.cache / "sha256" / digest
    whole = place.read_bytes()
    place.unlink()
    with serve() as mirror:
        mirror.answers[f"/sha256/{digest}"] = body(whole[: len(whole) // 2], announce=len(whole))
        variables = {"CAPSULE_SOURCE_MIRROR": mirror.url, "CAPSULE_DEBIAN_MIRROR": mirror.url}
        result = ground.build(env=variables)
        assert_one_error(result, 3, "zlib1g")
        assert not place.exists()
        ground.assert_untouched()
        mirror.answers[f"/sha256/{digest}"] = body(whole)
        again = ground.build(env=variables)
    assert again.code == 0, again.error_text
    assert sha256_file(ground.output) == capsules.built("docker", "musl").sha256


def test_a_poisoned_cache_is_said_and_mended(capsules: Capsules, ground: Ground, input_cache: Path) -> None:
    digest = ground.digest_of("zlib1g")
    place = ground.cache / "sha256" / digest
    poisoned = bytearray(place.read_bytes())
    poisoned[len(poisoned) // 2] ^= 1
    place.unlink()
    place.write_bytes(poisoned)
    result = ground.build(env={"CAPSULE_SOURCE_MIRROR": str(input_cache)})
    assert result.code == 0, result.error_text
    (line,) = [line for line in result.error_text.splitlines() if "not what its name says" in line]
    assert digest in line
    assert sha256_file(place) == digest
    assert sha256_file(ground.output) == capsules.built("docker", "musl").sha256


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        (("--node-version", "24"), ("'24' is not an exact version", "24.x.y")),
        (("--node-version", "22.1.0"), ("22.1.0", "24.x.y")),
        (("--node-version", "24.999.0"), ("24.999.0", "nearest")),
        (("--libc", "uclibc"), ("uclibc", "glibc", "musl")),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else None,
)
def test_what_cannot_be_built_is_wrong_usage(
    ground: Ground, arguments: tuple[str, ...], mentioned: tuple[str, ...]
) -> None:
    assert_one_error(ground.build(*arguments), 2, *mentioned)
    ground.assert_untouched()


def test_an_unknown_recipe_is_wrong_usage_and_the_nearest_is_named() -> None:
    assert_one_error(cli("nod24"), 2, "nod24", "node24")


# Outputs


def test_an_output_in_a_folder_that_is_not_there_is_wrong_usage(ground: Ground) -> None:
    missing = ground.folder / "missing" / "x.tar.gz"
    assert_one_error(cli("node24", missing, env=ground.variables), 2, str(missing.parent))
    assert not missing.parent.exists()


def test_an_output_that_is_a_folder_is_wrong_usage(ground: Ground) -> None:
    assert_one_error(cli("node24", ground.dist, env=ground.variables), 2, str(ground.dist), "folder")
    ground.assert_untouched()


@needs_root
def test_an_output_in_a_folder_that_cannot_be_written_is_wrong_usage(ground: Ground) -> None:
    with mounted(ground.folder / "frozen", "ro,size=1m") as frozen:
        result = cli("node24", frozen / "x.tar.gz", env=ground.variables)
    assert_one_error(result, 2, str(frozen), "writable")


@needs_root
def test_a_disk_that_fills_up_while_packing_leaves_the_previous_bundle(ground: Ground) -> None:
    with mounted(ground.folder / "small", "size=20m") as small:
        output = small / f"node24-v1-{platform('musl')}.tar.gz"
        output.write_bytes(b"the previous bundle")
        arguments = [str(output) if word == str(ground.output) else word for word in ground.arguments()]
        result = cli(*arguments, env=ground.variables)
        assert_one_error(result, 1, "No space left on device", "previous bundle")
        assert {path.name: path.read_bytes() for path in small.iterdir()} == {
            output.name: b"the previous bundle"
        }
    ground.assert_untouched()


@needs_root
def test_a_disk_that_fills_up_while_fetching_says_where_and_leaves_nothing_half(
    ground: Ground, input_cache: Path
) -> None:
    with mounted(ground.folder / "small", "size=60m") as small:
        variables = {"CAPSULE_CACHE_DIR": str(small), "CAPSULE_SOURCE_MIRROR": str(input_cache)}
        result = ground.build(env=variables)
        assert_one_error(result, 3, "No space left on device", str(small), "CAPSULE_CACHE_DIR")
        assert list((small / "staging").iterdir()) == []
        for path in (small / "sha256").iterdir():
            assert sha256_file(path) == path.name
    ground.assert_untouched()


@needs_root
def test_a_disk_that_fills_up_while_copying_out_says_so(ground: Ground) -> None:
    # Room for the inputs and what is rendered from them, but not for the tree that the engine hands over.
    inputs = sum(path.stat().st_size for path in (ground.cache / "sha256").iterdir())
    with mounted(ground.folder / "small", f"size={inputs + (40 << 20)}") as small:
        run(["cp", "-r", str(ground.cache / "sha256"), str(small)])
        result = ground.build(env={"CAPSULE_CACHE_DIR": str(small)})
        assert_one_error(result, 1, "No space left on device")
        assert list((small / "staging").iterdir()) == []
    ground.assert_untouched()
