"""A task bundle: its bytes, what lies beside it, who signed it, and what is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeyPolicy, VerifiedTask
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import sign_bundle
from capsule_build.release.task_provenance import read_task_provenance
from capsule_build.release.task_verification import verify_task
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, ContractError, SignatureError, UsageError
from capsule_build.sandbox.artifact import MAX_ARTIFACT_BYTES, read_artifact
from capsule_build.sandbox.exporting import export_set
from capsule_build.sandbox.granted import describe
from capsule_build.sandbox.guests import Guest, compare, guest_of
from capsule_build.sandbox.options import ConfigError, Folder, Policy
from capsule_build.sbom import TaskBundle, check_sbom, make_task_sbom, used_npm_packages
from tests.releases import without_schema
from tests.signed import KINDS, Shelf, edited, instance, policy, shelf, sign
from tests.sigstore_instance import IDENTITY, ISSUER
from tests.task_bundles import collected, lay_task, new_key, packed, sign_task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from capsule_build.release.policy import KeylessPolicy
    from capsule_build.release.policy import Policy as Asked

__all__ = ["instance", "policy", "shelf"]

WHOLE = packed(collected(own={"helper.py": b"VALUE = 5\n"}), version="1.0.0")


@pytest.fixture(autouse=True)
def _local_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a workflow the builder is that, and not the local one that a key is trusted with."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


# The file


def test_a_file_holds_what_was_packed() -> None:
    artifact = read_artifact(WHOLE, "hello.wasm")
    assert artifact.file.path == "hello.py"
    assert artifact.file.entry == "main"
    assert artifact.guest == guest_of("python")
    assert artifact.version == "1.0.0"
    assert artifact.contents["helper.py"] == b"VALUE = 5\n"
    assert len(artifact.policy_sha256) == 64


@settings(max_examples=400)
@given(place=st.integers(0, len(WHOLE) - 1), bits=st.integers(1, 255))
def test_no_byte_can_be_changed_unnoticed(place: int, bits: int) -> None:
    changed = bytearray(WHOLE)
    changed[place] ^= bits
    with pytest.raises(ContractError, match="is no packed task"):
        read_artifact(bytes(changed), "hello.wasm")


def test_not_one_bit_can_be() -> None:
    for place in range(len(WHOLE)):
        for bit in range(8):
            changed = bytearray(WHOLE)
            changed[place] ^= 1 << bit
            with pytest.raises(ContractError):
                read_artifact(bytes(changed), "hello.wasm")


def test_another_spelling_of_the_same_is_noticed() -> None:
    """zlib takes another level in its header, which changes nothing of what it unpacks."""
    start = WHOLE.rindex(b"\x78\x9c")
    changed = WHOLE[:start] + b"\x78\xda" + WHOLE[start + 2 :]
    assert zlib.decompress(changed[start:]) == zlib.decompress(WHOLE[start:])
    with pytest.raises(ContractError, match="its bytes were changed"):
        read_artifact(changed, "hello.wasm")


@given(st.binary(max_size=200))
@example(b"")
@example(WHOLE + b"\0")
@example(WHOLE[:-1])
def test_whatever_else_is_none(data: bytes) -> None:
    with pytest.raises(ContractError):
        read_artifact(data, "hello.wasm")


def rewritten(change: Callable[[dict[str, Any]], object]) -> bytes:
    """A packed file whose document was changed, and its digest with it."""
    start = WHOLE.rindex(b"\x78\x9c")
    document = json.loads(zlib.decompress(WHOLE[start:]))
    change(document)
    content = zlib.compress(json.dumps(document).encode())
    name = b"\x0fcapsule.task.v1"
    section = name + hashlib.sha256(content).digest() + content
    digits = [len(section) >> shift & 0x7F for shift in range(0, len(section).bit_length(), 7)]
    return WHOLE[:9] + bytes([*(digit | 0x80 for digit in digits[:-1]), digits[-1]]) + section


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.update(more=1), "its document isn't one of"),
        (lambda d: d.pop("guest"), "its document isn't one of"),
        (lambda d: d.update(schema_version="capsule.task.v2"), "its document isn't one of"),
        (lambda d: d.update(path="a/b.py"), "its source has no name"),
        (lambda d: d.update(source=5), "its source has no name, or no text"),
        (lambda d: d.update(version=""), "its version is no short line"),
        (lambda d: d.update(version="1\n2"), "its version is no short line"),
        (lambda d: d["guest"].update(language="javascript"), "its guest isn't one of its language"),
        (lambda d: d["guest"].update(sha256="AB" * 32), "its guest has no digest"),
        (lambda d: d["guest"].update(more=1), "Guest has the fields"),
        (lambda d: d.update(tasks=d["tasks"] * 2), "a task stands twice"),
        (lambda d: d.update(entry="other"), "its entry point is none"),
        (lambda d: d["tasks"][0].update(more=1), "a task's policy has other fields"),
        (lambda d: d["own"].update(x="?"), "is no packed task"),
        (lambda d: d.update(own=[]), "is no packed task"),
    ],
)
def test_a_document_that_is_wrong_is_refused(change: Callable[[dict[str, Any]], object], reason: str) -> None:
    assert read_artifact(rewritten(lambda _: None), "x.wasm").file.entry == "main"
    with pytest.raises(ContractError, match=reason):
        read_artifact(rewritten(change), "x.wasm")


def test_a_size_has_one_spelling() -> None:
    """LEB128 has many for a number, which WebAssembly allows: each would have another digest."""
    assert WHOLE[9] & 0x80
    assert not WHOLE[10] & 0x80
    longer = WHOLE[:10] + bytes([WHOLE[10] | 0x80, 0]) + WHOLE[11:]
    with pytest.raises(ContractError, match="isn't written the shortest way"):
        read_artifact(longer, "x.wasm")


def test_small_values_without_number_are_not_read() -> None:
    """They take far more memory and time than their bytes."""
    many = rewritten(lambda d: d.update(own=[[]] * 2_000_000))
    assert len(many) < 20_000
    with pytest.raises(ContractError, match="bytes beside its texts"):
        read_artifact(many, "x.wasm")
    texts = json.dumps('"' * 3_000_000 + "\\" * 3_000_000)
    assert read_artifact(rewritten(lambda d: d.update(source=texts)), "x.wasm").file.source == texts


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
DOCUMENT = json.loads(zlib.decompress(WHOLE[WHOLE.rindex(b"\x78\x9c") :]))
PLACES = [
    *((key,) for key in DOCUMENT),
    *(("guest", key) for key in DOCUMENT["guest"]),
    *(("tasks", 0, key) for key in DOCUMENT["tasks"][0]),
    ("own", "helper.py"),
]


@settings(max_examples=500)
@given(place=st.sampled_from(PLACES), value=VALUES)
@example(place=("tasks", 0, "timeout_ms"), value=float("inf"))
@example(place=("tasks", 0, "fuel"), value=float("nan"))
@example(place=("source",), value="\ud800")
def test_whatever_stands_in_a_place_it_is_read_or_refused(place: tuple[Any, ...], value: object) -> None:
    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value

    with contextlib.suppress(ContractError, ConfigError):
        artifact = read_artifact(rewritten(change), "x.wasm")
        assert isinstance(artifact.file.source, str)
        assert artifact.file.entry in artifact.file.tasks


def test_another_guest_is_told_once_or_refused() -> None:
    heard: list[str] = []
    other = Guest("python", "ab" * 32)
    for _ in range(2):
        compare(other, "x.wasm", must_be_same=False, say=heard.append)
    assert len(heard) == 1
    assert "ab" * 32 in heard[0]
    assert guest_of("python").sha256 in heard[0]
    with pytest.raises(ConfigError, match="was packed for the python guest abab"):
        compare(other, "x.wasm", must_be_same=True, say=heard.append)
    for language in ("python", "javascript"):
        compare(guest_of(language), "x.wasm", must_be_same=True, say=heard.append)
    assert len(heard) == 1


def test_grants_are_told_in_words() -> None:
    assert describe(Policy("main", "main")) == "compute 2000000000; files none; hosts none; variables none"
    folders = (Folder("./x\n", True), Folder("y", False))
    much = Policy("a", "a", False, 5, 64 << 20, 500, 2, folders, ("*",), ("K",))
    assert describe(much) == (
        "compute 5; ram 67108864; timeout 500 ms; retries 2; files ./x\\n (rw), y (ro); hosts *; variables K"
    )


# What lies beside it


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


# Who signed it


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, KeyPolicy]:
    return new_key(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def signed(tmp_path: Path, keys: tuple[Path, KeyPolicy], monkeypatch: pytest.MonkeyPatch) -> Outputs:
    without_schema(monkeypatch)
    return sign_task(lay_task(tmp_path, collected(own={"helper.py": b"H = 1\n"})), keys[0])


def refused(outputs: Outputs, asked: Asked, reason: str, kind: type[CapsuleError] = SignatureError) -> None:
    with pytest.raises(kind, match=reason) as caught:
        verify_release(outputs.bundle, asked)
    assert caught.value.exit_code == kind.exit_code


def test_untouched_it_is_accepted(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    verified = verify_release(signed.bundle, keys[1])
    assert isinstance(verified, VerifiedTask)
    assert verified.artifact.file.entry == "main"
    assert verified.signer.startswith("key ")


def test_one_changed_byte_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    data = bytearray(signed.bundle.read_bytes())
    data[-1] ^= 1
    signed.bundle.write_bytes(data)
    refused(signed, keys[1], "is the signature of another file, or the file was changed")


def test_another_key_is_refused(signed: Outputs, tmp_path: Path) -> None:
    _, other = new_key(tmp_path / "other")
    refused(signed, other, "is of another key")


@pytest.mark.parametrize("name", ["signature", "provenance_signature", "sbom_signature"])
def test_a_missing_signature_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy], name: str) -> None:
    getattr(signed, name).unlink()
    refused(signed, keys[1], "The signature .* isn't there")


@pytest.mark.parametrize("name", ["provenance", "sbom", "digest"])
def test_a_missing_document_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy], name: str) -> None:
    getattr(signed, name).unlink()
    refused(signed, keys[1], "isn't there")


def test_what_is_of_another_bundle_is_refused(
    signed: Outputs, keys: tuple[Path, KeyPolicy], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = sign_task(lay_task(tmp_path / "other", collected("def main(): return 2\n")), keys[0])
    reasons = {
        "signature": "is the signature of another file",
        "provenance_signature": "is about another file",
        "sbom_signature": "is about another file",
    }
    for name, reason in reasons.items():
        path = getattr(signed, name)
        kept = path.read_bytes()
        shutil.copy(getattr(other, name), path)
        refused(signed, keys[1], reason)
        path.write_bytes(kept)
    for name, reason in (("provenance", "isn't the provenance"), ("sbom", "isn't the SBOM")):
        path = getattr(signed, name)
        kept = path.read_bytes()
        shutil.copy(getattr(other, name), path)
        refused(signed, keys[1], reason)
        path.write_bytes(kept)
    shutil.copy(other.digest, signed.digest)
    refused(signed, keys[1], "isn't the digest", ContractError)


def test_another_name_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    for path in signed.released:
        path.rename(path.with_name(path.name.replace("hello", "other")))
    renamed = Outputs(signed.bundle.with_name("other.wasm"))
    refused(renamed, keys[1], r"is about hello\.wasm, not about other\.wasm")


def test_another_builder_is_refused(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    refused(signed, replace(keys[1], builder="https://ci.example.org/x"), "names the builder")


def test_a_capsules_signature_is_none_of_a_task(
    signed: Outputs, keys: tuple[Path, KeyPolicy], tmp_path: Path
) -> None:
    """What a bundle is called says what it must be."""
    for path in signed.released:
        path.rename(path.with_name(path.name.replace(".wasm", ".tar.gz")))
    refused(Outputs(signed.bundle.with_name("hello.tar.gz")), keys[1], "has the build type")


def test_the_bytes_that_were_read_are_what_is_verified(signed: Outputs, keys: tuple[Path, KeyPolicy]) -> None:
    """Nothing under the bundle's name is opened again."""
    data = signed.bundle.read_bytes()
    signed.bundle.unlink()
    assert verify_task(signed.bundle, data, keys[1]).artifact.file.entry == "main"


@pytest.mark.parametrize(
    ("change", "reason", "kind"),
    [
        (
            lambda d: d["predicate"]["buildDefinition"]["internalParameters"]["task"].update(entry="x"),
            "don't agree about what it is",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"]["internalParameters"]["guest"].update(
                sha256="ab" * 32
            ),
            "don't agree about what it is",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"]["externalParameters"].update(file="x.py"),
            "don't agree about the source's name",
            SignatureError,
        ),
        (
            lambda d: d["predicate"]["buildDefinition"]["resolvedDependencies"][1]["digest"].update(
                sha256="ab" * 32
            ),
            "don't agree about the files in it",
            SignatureError,
        ),
    ],
)
def test_what_does_not_agree_is_not_signed(
    tmp_path: Path,
    keys: tuple[Path, KeyPolicy],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any]], None],
    reason: str,
    kind: type[CapsuleError],
) -> None:
    without_schema(monkeypatch)
    outputs = Outputs(lay_task(tmp_path))
    edited(outputs.provenance, change)
    with pytest.raises(kind, match=reason):
        sign_task(outputs.bundle, keys[0])
    assert not outputs.signature.exists()


def test_an_sbom_of_other_files_is_not_signed(
    tmp_path: Path, keys: tuple[Path, KeyPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_schema(monkeypatch)
    outputs = Outputs(lay_task(tmp_path))
    edited(outputs.sbom, lambda d: d["metadata"]["component"]["components"].clear())
    with pytest.raises(ContractError, match=r"doesn't list the file 'hello\.py'"):
        sign_task(outputs.bundle, keys[0])


def test_what_is_too_large_is_no_bundle(tmp_path: Path, keys: tuple[Path, KeyPolicy]) -> None:
    path = tmp_path / "big.wasm"
    with path.open("wb") as stream:
        stream.truncate(MAX_ARTIFACT_BYTES + 1)
    with pytest.raises(UsageError, match="has more than"):
        verify_release(path, keys[1])


# An identity, by an instance of Sigstore's services on this machine


@pytest.mark.parametrize("kind", KINDS)
def test_an_identity_signs(tmp_path: Path, shelf: Shelf, policy: KeylessPolicy, kind: str) -> None:
    (tmp_path / "dist").mkdir()
    bundle = lay_task(tmp_path / "dist")
    sign(bundle, shelf.instance, kind)
    verified = verify_release(bundle, policy)
    assert verified.signer == f"{IDENTITY} ({ISSUER})"
    assert verified.signed_at is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"identity": "somebody@example.org"}, "Certificate's SANs do not match"),
        ({"issuer": "https://other.example.org"}, "Certificate's OIDCIssuer does not match"),
        ({"builder": "https://ci.example.org/build.yml"}, "names the builder"),
    ],
)
def test_somebody_elses_signature_is_refused(
    tmp_path: Path,
    shelf: Shelf,
    policy: KeylessPolicy,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    reason: str,
) -> None:
    without_schema(monkeypatch)
    (tmp_path / "dist").mkdir()
    bundle = lay_task(tmp_path / "dist")
    sign(bundle, shelf.instance)
    refused(Outputs(bundle), replace(policy, **change), reason)  # type: ignore[arg-type]


def test_the_kind_of_signature_is_the_callers_choice(
    tmp_path: Path,
    shelf: Shelf,
    policy: KeylessPolicy,
    keys: tuple[Path, KeyPolicy],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_schema(monkeypatch)
    (tmp_path / "dist").mkdir()
    bundle = lay_task(tmp_path / "dist")
    sign(bundle, shelf.instance)
    refused(Outputs(bundle), keys[1], "is a keyless signature, and one of a key is asked for")
    sign_task(bundle, keys[0])
    refused(Outputs(bundle), policy, "is signed with a key, and a keyless signature is asked for")


def test_a_signer_is_asked_for_nothing_that_is_wrong(tmp_path: Path) -> None:
    """The digest beside it is that of other bytes."""

    class Never:
        identity = "nobody"

        def sign_artifact(self, path: Path) -> bytes:
            raise AssertionError(path)

        def sign_statement(self, data: bytes) -> bytes:
            raise AssertionError(data)

    bundle = lay_task(tmp_path)
    bundle.write_bytes(bundle.read_bytes() + b"\0")
    with pytest.raises(ContractError, match="isn't the digest"):
        sign_bundle(bundle, Never())
