"""What changed between two bundles, and what a bundle says of licences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from capsule_build.cli import bundles as commands
from capsule_build.comparison import compare_bundles
from capsule_build.licence_report import read_licences
from capsule_build.runtime.errors import ContractError
from capsule_build.runtime.rules import BundleError
from tests.bundles import SBOM, file, link, small_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bundles import Bundle

TEXT = "share/licenses/node.txt"


def component(name: str, version: str, licence: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "library",
        "name": name,
        "version": version,
        "licenses": [{"expression": licence}],
        **more,
    }


def package(name: str, version: str, licence: str = "MIT") -> dict[str, Any]:
    return component(name, version, licence, **{"bom-ref": f"pkg:npm/{name}@{version}"})


def sbom(*components: dict[str, Any]) -> dict[str, object]:
    return {**SBOM, "components": list(components)}


def written(folder: Path, name: str, bundle: Bundle) -> Path:
    path = folder / name
    path.write_bytes(bundle.data())
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    listed = sbom(
        component("node", "24.1.0", "MIT"),
        component("gone", "1", "MIT"),
        package("leaf", "1.0.0"),
        package("leaf", "2.0.0"),
        package("same", "1.0.0"),
    )
    more = (file("bin/old", b"old"), file("bin/kept", b"kept"), file("bin/mode", b""), link("bin/to", "old"))
    return written(tmp_path, "before.tar.gz", small_bundle(sbom=listed).add(*more))


@pytest.fixture
def after(tmp_path: Path) -> Path:
    listed = sbom(
        component("node", "24.2.0", "MIT OR Apache-2.0"),
        component("new", "3", "Zlib"),
        package("leaf", "2.0.0"),
        package("leaf", "2.1.0"),
        package("same", "1.0.0"),
    )
    more = (file("bin/new", b"newer"), file("bin/kept", b"KEPT"), file("bin/mode", b"", executable=True))
    return written(tmp_path, "after.tar.gz", small_bundle(sbom=listed).add(*more, link("bin/to", "new")))


def test_a_bundle_is_the_same_as_itself(before: Path) -> None:
    found = compare_bundles(before, before)
    assert found.same
    document = found.to_json()
    assert document["components"] == {"added": [], "removed": [], "changed": []}
    assert document["files"] == {"added": [], "removed": [], "changed": []}


def test_components_and_licences_that_changed_are_told(before: Path, after: Path) -> None:
    document: Any = compare_bundles(before, after).to_json()
    assert not document["same"]
    assert document["components"] == {
        "added": [{"name": "new", "version": "3", "licenses": ["Zlib"]}],
        "removed": [{"name": "gone", "version": "1", "licenses": ["MIT"]}],
        "changed": [
            {"name": "node", "before": ["24.1.0"], "after": ["24.2.0"]},
            {"name": "leaf", "before": ["1.0.0", "2.0.0"], "after": ["2.0.0", "2.1.0"]},
        ],
    }
    assert document["licenses"] == [{"name": "node", "before": ["MIT"], "after": ["MIT OR Apache-2.0"]}]


def test_files_are_compared_by_kind_mode_and_content(before: Path, after: Path) -> None:
    document: Any = compare_bundles(before, after).to_json()
    changed = {item["name"]: item["what"] for item in document["files"]["changed"]}
    assert document["files"]["added"] == [{"name": "bin/new", "bytes": 5}]
    assert document["files"]["removed"] == [{"name": "bin/old", "bytes": 3}]
    assert changed == {
        "bin/kept": ["content"],
        "bin/mode": ["mode"],
        "bin/to": ["content"],
        "share/sbom.cdx.json": ["content"],
    }
    areas = {item["name"]: item["after"] - item["before"] for item in document["areas"]}
    assert areas["bin"] == 2
    assert areas["abi/musl"] == 0


def test_a_bad_bundle_is_not_compared(before: Path, tmp_path: Path) -> None:
    bad = written(
        tmp_path, "bad.tar.gz", small_bundle().add(file("bin/NODE"), file("bin/node2"), file("bin/Node2"))
    )
    with pytest.raises(BundleError, match="duplicate"):
        compare_bundles(before, bad)


def run(*arguments: object) -> str:
    app = typer.Typer()
    commands.register(app)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_people_see_the_difference(before: Path, after: Path) -> None:
    said = " ".join(run("diff", before, after, "--files").split())
    for words in (
        "node 24.1.0 24.2.0",
        "1.0.0, 2.0.0",
        "Files: 1 added, 1 removed, 4 changed.",
        "other mode",
    ):
        assert words in said
    assert run("diff", before, before).startswith("The same bytes")


def test_machines_see_the_difference(before: Path, after: Path) -> None:
    document = json.loads(run("diff", before, after, "--json"))
    assert document["schema_version"] == "capsule-build.diff.v1"
    assert document == compare_bundles(before, after).to_json()


def licensed(*texts: str, remark: str = "") -> dict[str, object]:
    properties = [{"name": "capsule:licence-texts", "value": remark}] if remark else []
    return sbom(
        component(
            "bash",
            "5.2",
            "GPL-3.0-or-later",
            components=[{"type": "file", "name": name} for name in ("bin/bash", *texts)],
            properties=properties,
            externalReferences=[
                {"type": "distribution", "url": "pkg:deb/debian/bash@5.2"},
                {"type": "source-distribution", "url": "pkg:deb/debian/bash@5.2?arch=source"},
            ],
        )
    )


def test_licences_come_with_texts_and_source(tmp_path: Path) -> None:
    path = written(tmp_path, "b.tar.gz", small_bundle(sbom=licensed(TEXT, remark="spdx-list")))
    (entry,) = json.loads(run("inspect", path, "--licenses", "--json"))["components"]
    assert entry == {
        "name": "bash",
        "version": "5.2",
        "licenses": ["GPL-3.0-or-later"],
        "texts": [TEXT],
        "texts_are": "spdx-list",
        "sources": ["pkg:deb/debian/bash@5.2?arch=source"],
    }
    said = run("inspect", path, "--licenses")
    for words in ("GPL-3.0-or-later", "node.txt", "it came without its own", "arch=source"):
        assert words in said


def test_a_text_that_is_not_there_is_found_out(tmp_path: Path) -> None:
    path = written(tmp_path, "b.tar.gz", small_bundle(sbom=licensed("share/licenses/bash/COPYING")))
    with pytest.raises(ContractError, match=r"'share/licenses/bash/COPYING' that isn't there"):
        read_licences(path)


@pytest.mark.parametrize(
    "change",
    [
        {"components": 3},
        {"components": [3]},
        {"components": [{"type": "file"}]},
        {"externalReferences": [{"type": "source-distribution", "url": 3}]},
        {"properties": [{"name": "capsule:licence-texts"}]},
        {"bom-ref": 3},
    ],
)
def test_what_is_no_sbom_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = written(tmp_path, "b.tar.gz", small_bundle(sbom=sbom(component("x", "1", "MIT", **change))))
    with pytest.raises(ContractError, match="The SBOM's component"):
        read_licences(path)
