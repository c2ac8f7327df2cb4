"""What lies beside a task bundle: its digest, its SBOM and its provenance."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.release.outputs import Outputs
from capsule_build.release.signer import SigningOptions
from capsule_build.release.task_provenance import read_task_provenance
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from capsule_build.sandbox.exporting import export_set
from capsule_build.sandbox.guests import guest_of
from capsule_build.sbom import TaskBundle, check_sbom, make_task_sbom, used_npm_packages
from tests.signed import edited
from tests.task_bundles import collected, lay_task, local_builder, new_key, packed, sign_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["local_builder"]


def test_the_same_files_make_the_same_set(tmp_path: Path) -> None:
    sets = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        bundle = lay_task(tmp_path / name)
        sets.append({path.name: path.read_bytes() for path in Outputs(bundle).released if path.exists()})
    assert sets[0] == sets[1]
    assert list(sets[0]) == [
        "hello.wasm",
        "hello.wasm.sha256",
        "hello.wasm.cdx.json",
        "hello.wasm.provenance.json",
    ]
    digest = hashlib.sha256(sets[0]["hello.wasm"]).hexdigest()
    assert sets[0]["hello.wasm.sha256"] == f"{digest}  hello.wasm\n".encode()


def test_no_time_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = Outputs(lay_task(tmp_path))
    before = [path.read_bytes() for path in (outputs.bundle, outputs.sbom, outputs.provenance)]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    (tmp_path / "other").mkdir()
    after = Outputs(lay_task(tmp_path / "other"))
    assert [path.read_bytes() for path in (after.bundle, after.sbom, after.provenance)] == before


def install(site: Path, name: str, metadata: str, files: dict[str, str]) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    for file, text in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text)


def test_the_sbom_has_files_packages_and_guest(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, "Nice_Name", "License: MIT\nAuthor: Ann\n", {"nice/__init__.py": "N = 1\n"})
    install(site, "odd", "License: whatever you like\n", {"odd.py": "O = 1\n"})
    (site / "loose.py").write_text("L = 1\n")
    installed = {name: (site / name).read_bytes() for name in ("nice/__init__.py", "odd.py", "loose.py")}
    what = collected(own={"helper.py": b"H = 1\n"}, installed=installed, folders=(str(site),))
    outputs = Outputs(lay_task(tmp_path, what, version="2.1"))
    check_sbom(outputs.sbom.read_bytes())
    document = json.loads(outputs.sbom.read_bytes())
    root = document["metadata"]["component"]
    assert root["hashes"][0]["content"] == hashlib.sha256(outputs.bundle.read_bytes()).hexdigest()
    assert (root["name"], root["version"]) == ("hello", "2.1")
    assert [file["name"] for file in root["components"]] == ["/packages/loose.py", "hello.py", "helper.py"]
    found = {component["name"]: component for component in document["components"]}
    assert found["nice-name"]["purl"] == "pkg:pypi/nice-name@1.0"
    assert found["nice-name"]["licenses"] == [{"expression": "MIT"}]
    assert found["nice-name"]["authors"] == [{"name": "Ann"}]
    assert [file["name"] for file in found["nice-name"]["components"]] == ["/packages/nice/__init__.py"]
    assert found["odd"]["licenses"] == [{"license": {"name": "whatever you like"}}]
    guest = found["capsule-build guest for python"]
    assert guest["hashes"][0]["content"] == guest_of("python").sha256


@pytest.mark.parametrize(
    ("metadata", "files"),
    [
        ("Author: A\n B\n", ["x.py"]),
        ("License: \xff\nAuthor: \xff\n", ["x.py"]),
        ("License-Expression: nothing that is one\n", ["x.py"]),
    ],
)
def test_packages_may_say_anything_of_themselves(tmp_path: Path, metadata: str, files: list[str]) -> None:
    site = tmp_path / "site"
    install(site, "pkg", metadata, dict.fromkeys(files, ""))
    install(site, "no-files", "", {})
    what = collected(installed=dict.fromkeys(files, b""), folders=(str(site),))
    check_sbom(Outputs(lay_task(tmp_path, what)).sbom.read_bytes())


@pytest.mark.parametrize(
    ("said", "name", "version"),
    [
        ('{"name": "left", "version": "1.0.0", "license": "MIT", "author": "Ann <a@b.c>"}', "left", "1.0.0"),
        ('{"name": "@me/left", "version": "1.0.0 beta/2"}', "@me/left", "1.0.0 beta/2"),
        ('{"name": "a b/c?", "version": 5, "license": [5], "author": {"name": "\\ud800"}}', "left", "0"),
        ('{"name": "\\ud800", "version": "1\\n2", "license": "\\ud800"}', "left", "0"),
        ("[]", "left", "0"),
        ("not json", "left", "0"),
        (None, "left", "0"),
    ],
)
def test_npm_packages_may_too(tmp_path: Path, said: str | None, name: str, version: str) -> None:
    place = tmp_path / "node_modules" / "left"
    place.mkdir(parents=True)
    if said is not None:
        (place / "package.json").write_text(said)
    files = ["main.js", "node_modules/left/index.js", "node_modules/left/lib/x.js"]
    (package,) = used_npm_packages(str(tmp_path), files)
    assert (package.name, package.version, package.owns) == (name, version, tuple(files[1:]))
    bundle = TaskBundle("x.wasm", "ab" * 32, 5, None, "main", "cd" * 32, "javascript", "ef" * 32)
    check_sbom(make_task_sbom(bundle, dict.fromkeys(files, "ab" * 32), [(package, package.owns)]))


def test_a_package_in_a_package_and_one_with_a_scope_are_their_own(tmp_path: Path) -> None:
    files = [
        "../node_modules/@me/a/index.js",
        "node_modules/b/node_modules/c/index.js",
        "node_modules/.pnpm/d@1/node_modules/d/index.js",
        "node_modules/loose.js",
    ]
    found = {package.name: package.owns for package in used_npm_packages(str(tmp_path), files)}
    assert found == {"@me/a": (files[0],), "c": (files[1],), "d": (files[2],)}


def test_the_provenance_names_each_file_and_the_guest(tmp_path: Path) -> None:
    outputs = Outputs(lay_task(tmp_path, collected(own={"helper.py": b"H = 1\n"}), version="2.1"))
    told = read_task_provenance(outputs.provenance.read_bytes())
    assert told.statement.sha256 == hashlib.sha256(outputs.bundle.read_bytes()).hexdigest()
    assert dict(told.inputs) == {
        "hello.py": hashlib.sha256(b"def main(): return 1\n").hexdigest(),
        "helper.py": hashlib.sha256(b"H = 1\n").hexdigest(),
    }
    assert told.found.guest.sha256 == guest_of("python").sha256
    assert told.found.task.entry == "main"
    assert told.found.task.version == "2.1"


@pytest.mark.parametrize(
    ("change", "reason", "kind"),
    [
        (lambda d: d["predicate"].update(more=1), "more", ContractError),
        (
            lambda d: d["predicate"]["buildDefinition"].update(buildType="urn:x"),
            "build type 'urn:x'",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"].update(
                buildType="urn:agentcompass:capsule-build:bundle:v1"
            ),
            "has the build type",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"].update(resolvedDependencies=[]),
            "resolvedDependencies",
            ContractError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"].update(
                resolvedDependencies=d["predicate"]["buildDefinition"]["resolvedDependencies"] * 2
            ),
            "stands twice",
            ContractError,
        ),
    ],
)
def test_a_provenance_is_read_strictly(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], reason: str, kind: type[CapsuleError]
) -> None:
    outputs = Outputs(lay_task(tmp_path))
    edited(outputs.provenance, change)
    with pytest.raises(kind, match=reason):
        read_task_provenance(outputs.provenance.read_bytes())


def test_in_a_workflow_the_builder_is_the_workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, workflow = "https://ci.example.org", "me/tasks/.github/workflows/build.yml@refs/tags/v1"
    for name, value in (
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_SERVER_URL", server),
        ("GITHUB_WORKFLOW_REF", workflow),
        ("GITHUB_REPOSITORY", "me/tasks"),
        ("GITHUB_RUN_ID", "5"),
        ("GITHUB_RUN_ATTEMPT", "1"),
    ):
        monkeypatch.setenv(name, value)
    told = read_task_provenance(Outputs(lay_task(tmp_path)).provenance.read_bytes())
    assert told.builder.id == f"{server}/{workflow}"
    run = told.predicate.run_details.metadata.invocation_id
    assert run == f"{server}/me/tasks/actions/runs/5/attempts/1"


def test_a_name_that_no_bundle_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be the name of a bundle"):
        lay_task(tmp_path, collected(name="my task"))
    assert list(tmp_path.iterdir()) == []


def test_signatures_stay_with_what_they_are_of(tmp_path: Path) -> None:
    key, asked = new_key(tmp_path / "keys")
    outputs = sign_task(lay_task(tmp_path), key)
    lay_task(tmp_path)
    verify_release(outputs.bundle, asked)
    lay_task(tmp_path, collected("def main(): return 2\n"))
    assert not any(path.exists() for path in outputs.signatures)


def test_without_a_signer_nothing_is_written(tmp_path: Path) -> None:
    """The key, or the identity, is had before the first file."""
    what = collected()
    asked = SigningOptions(key=tmp_path / "nope.pem")
    with pytest.raises(UsageError, match="can't be read"):
        export_set(tmp_path / "hello.wasm", packed(what), what, asked, print)
    assert list(tmp_path.iterdir()) == []
