"""Twenty processes at once, each killed with probability one half: never a wrong or partial install."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime.process import run
from tests import images
from tests.crowd import PROCESSES
from tests.downloads import cut_off, ranges, stalling
from tests.servers import body, in_turn, redirect, serve
from tests.targets import host_libc, make_tmp, megabyte, memory_folder, registry_of, remove_read_only, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capsule_build.runtime import Registry
    from tests.integration.capsules import Capsules

SECONDS = 5400
"""A thousand rounds, on a machine that does other things as well."""
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, so that fifty rounds don't wait for the disk."""
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def busybox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program that runs anywhere."""
    folder = tmp_path_factory.mktemp("busybox")
    run(["tar", "-xf", str(images.root_tar("bare")), "-C", str(folder), "bin/busybox"])
    return folder / "bin/busybox"


def crowd(folder: Path, registry: Registry, **spec: Any) -> dict[str, int]:
    """Run `tests.crowd`; return what it counted."""
    lock = folder / "registry.lock.json"
    lock.write_bytes(registry.to_bytes())
    what = {"registry": str(lock), "seed": time.time_ns(), **spec}
    (folder / "spec.json").write_text(json.dumps(what))
    result = run(
        [sys.executable, "-m", "tests.crowd", str(folder / "spec.json")],
        cwd=CHECKOUT,
        check=False,
        timeout=SECONDS,
    )
    assert result.code == 0, f"seed {what['seed']}:\n{result.error_text}"
    told: dict[str, int] = json.loads(result.stdout)
    assert told["rounds"] == spec["rounds"]
    assert told["killed"] + told["ended"] == PROCESSES * spec["rounds"]
    # Rounds in which nobody was killed would prove nothing.
    assert told["killed"] > spec["rounds"]
    return told


def in_folder(folder: Path, data: bytes, rounds: int, seconds: float) -> dict[str, int]:
    """A crowd that installs a bundle into a folder that stands for /tmp."""
    root = make_tmp(folder / "target")
    store, bundle = stored(folder / "data", data)
    options = {"kind": "install", "root": str(root), "data": str(store.folder.parent)}
    return crowd(folder, registry_of(bundle), rounds=rounds, seconds=seconds, **options)


def test_a_crowd_installs_a_small_bundle(memory: Path, busybox: Path) -> None:
    data = megabyte(host_libc(), busybox).data()
    assert 500_000 < len(data) < 2_000_000
    told = in_folder(memory, data, 50, 0.5)
    # Some of the kills must have come before an install was finished, and some after.
    assert told["there_after_kills"] > 10


@pytest.mark.engine
def test_a_crowd_installs_node24(capsules: Capsules, tmp_path: Path) -> None:
    in_folder(tmp_path, capsules.built("docker", host_libc()).path.read_bytes(), 3, 8.0)
    remove_read_only(tmp_path / "target")


def rude(data: bytes) -> dict[str, Callable[..., None]]:
    """Ways of a server that misbehaves, for any bundle."""
    return {
        "early": cut_off(len(data) // 3, data),
        "stalls": stalling(len(data) // 2, data),
        "wrong": body(bytes(len(data))),
        "length": body(data[:-7]),
        "500": body(b"", status=500),
        "404": body(b"", status=404),
        "elsewhere": redirect("ftp://127.0.0.1/x"),
        "whole": body(data),
        "good": ranges(data),
    }


def store_crowd(folder: Path, data: bytes, rounds: int) -> dict[str, int]:
    ways = rude(data)
    chance = random.Random(rounds)
    with serve() as site:
        bad = [name for name in ways if name not in ("whole", "good")]
        for name in bad:
            site.answers[f"/{name}"] = ways[name]
        # One that behaves in another way each time, and never so that there is no use in asking again.
        temporary = ("early", "stalls", "500", "whole", "good")
        # Five by five in any order: at most six bad answers follow each other, and eight times is asked.
        moods = [ways[name] for _ in range(80 * rounds) for name in chance.sample(temporary, 5)]
        site.answers["/moody"] = in_turn(*moods, ways["good"])
        urls = tuple(f"{site.url}{name}" for name in (*bad, "moody"))
        bundle = folder / "node24.tar.gz"
        bundle.write_bytes(data)
        options = {"kind": "store", "data": str(folder / "data")}
        told = crowd(folder, registry_of(bundle, urls=urls), rounds=rounds, seconds=1.0, **options)
    assert len(site.asked) > len(bad) * rounds
    return told


def test_a_crowd_downloads_from_servers_that_misbehave(memory: Path, busybox: Path) -> None:
    store_crowd(memory, megabyte(host_libc(), busybox).data(), 10)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS)
def test_soak_a_crowd_installs_a_small_bundle(memory: Path, busybox: Path) -> None:
    in_folder(memory, megabyte(host_libc(), busybox).data(), 1000, 0.7)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS)
@pytest.mark.engine
def test_soak_a_crowd_installs_node24(capsules: Capsules, tmp_path: Path) -> None:
    in_folder(tmp_path, capsules.built("docker", host_libc()).path.read_bytes(), 50, 8.0)
    remove_read_only(tmp_path / "target")


@pytest.mark.soak
@pytest.mark.timeout(SECONDS)
def test_soak_a_crowd_downloads(memory: Path, busybox: Path) -> None:
    store_crowd(memory, megabyte(host_libc(), busybox).data(), 100)
