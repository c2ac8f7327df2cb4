"""A bundle that is built again keeps its signatures exactly if they still say the truth."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from capsule_build.build import build
from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.provenance import make_provenance
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import open_signer, sign_bundle
from capsule_build.release.verification import verify_release
from tests import fakes
from tests.releases import without_schema, write_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fakes.World:
    fakes.detach(monkeypatch)
    without_schema(monkeypatch)
    return fakes.World(tmp_path)


def signed(world: fakes.World) -> tuple[Outputs, KeyPolicy]:
    """Build the tiny bundle and sign it; a person would take longer for both than a clock's second."""
    outputs = Outputs(build(world.plan(), world.shop, world.report).plan.output)
    record = json.loads(outputs.record.read_bytes())
    record["builder"] |= {"started": "2020-01-01T00:00:00Z", "finished": "2020-01-01T00:01:00Z"}
    data = json.dumps(record).encode()
    outputs.record.write_bytes(data)
    outputs.provenance.write_bytes(make_provenance(data))
    key, public_key = write_keys(world.folder)
    with open_signer(SigningOptions(key=key), say=lambda _: None) as signer:
        for path, envelope in sign_bundle(outputs.bundle, signer).items():
            path.write_bytes(envelope)
    world.report.heard.clear()
    return outputs, KeyPolicy(public_key)


def state(world: fakes.World) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in world.dist.iterdir()}


def test_the_same_bundle_keeps_its_signatures_and_what_they_are_about(
    world: fakes.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, policy = signed(world)
    before = state(world)
    other = replace(world.engine.info(), name="other", server_version="99.0")
    monkeypatch.setattr(world.engine, "info", lambda: other)
    build(world.plan(), world.shop, world.report)
    assert state(world) == before
    assert (
        "note: It is the bundle that was there: its 3 signatures and other files stay." in world.report.heard
    )
    verify_release(outputs.bundle, policy)


def other_content(world: fakes.World, _: Outputs) -> None:
    world.engine.files["runtime/tool/data"] = b"other data"


def other_recipe(world: fakes.World, _: Outputs) -> None:
    with (world.recipes / "tiny.toml").open("a") as stream:
        stream.write("# more\n")


def other_sbom(_: fakes.World, outputs: Outputs) -> None:
    outputs.sbom.write_bytes(outputs.sbom.read_bytes() + b"\n")


def other_bundle(_: fakes.World, outputs: Outputs) -> None:
    outputs.bundle.write_bytes(outputs.bundle.read_bytes() + b"\n")


def no_record(_: fakes.World, outputs: Outputs) -> None:
    outputs.record.unlink()


def other_builder(_: fakes.World, outputs: Outputs) -> None:
    rewritten(outputs, "id", "https://example.org/builder")


def other_compressor(_: fakes.World, outputs: Outputs) -> None:
    rewritten(outputs, "zlib_ng", "0.5.1")


def rewritten(outputs: Outputs, key: str, value: str) -> None:
    record = json.loads(outputs.record.read_bytes())
    record["builder"][key] = value
    data = json.dumps(record).encode()
    outputs.record.write_bytes(data)
    outputs.provenance.write_bytes(make_provenance(data))


@pytest.mark.parametrize(
    "change",
    [other_content, other_recipe, other_sbom, other_bundle, no_record, other_builder, other_compressor],
)
def test_signatures_of_what_is_no_more_are_removed_and_that_is_said(
    world: fakes.World, change: Callable[[fakes.World, Outputs], None]
) -> None:
    outputs, _ = signed(world)
    change(world, outputs)
    build(world.plan(), world.shop, world.report)
    assert not any(path.exists() for path in outputs.signatures)
    said = f"Removed 3 signatures of the old bundle: sign again with 'capsule-build sign {outputs.bundle}'."
    assert f"note: {said}" in world.report.heard


def test_without_signatures_nothing_is_said(world: fakes.World) -> None:
    build(world.plan(), world.shop, world.report)
    build(world.plan(), world.shop, world.report)
    assert not [text for text in world.report.heard if text.startswith("note: ")]
