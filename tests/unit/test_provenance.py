"""Provenance: made of the build record, and read so strictly that nothing else passes for it."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.builder import LOCAL_BUILDER
from capsule_build.pins import Pin
from capsule_build.release.provenance import make_provenance, read_provenance
from capsule_build.release.slsa import BUILD_TYPE
from capsule_build.runtime.errors import ContractError, SignatureError
from tests import bundles, releases

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "node24-v1-linux-x86_64-musl.tar.gz"


def record(**changes: Any) -> dict[str, Any]:
    return releases.record(NAME, b"a bundle", bundles.manifest(), releases.TAG, **changes)


def made(**changes: Any) -> bytes:
    return make_provenance(json.dumps(record(**changes)).encode())


def document(**changes: Any) -> dict[str, Any]:
    value = json.loads(made(**changes))
    assert isinstance(value, dict)
    return value


def test_it_says_what_was_asked_and_what_it_was_made_of() -> None:
    provenance = read_provenance(made())
    assert provenance.filename == NAME
    assert provenance.sha256 == record()["bundle"]["sha256"]
    assert (provenance.asked.recipe, provenance.asked.libc) == ("node24", "musl")
    assert provenance.capsule.install_root == record()["capsule"]["install_root"]
    assert provenance.epoch == bundles.MTIME
    assert provenance.overrides == ()
    assert provenance.builder.id == LOCAL_BUILDER
    assert provenance.builder.version["docker"] == "20.10.24"
    assert provenance.source is not None
    assert provenance.source.digest.git_commit == releases.COMMIT
    assert provenance.definitions == record()["definitions"]
    (node,) = provenance.inputs
    assert (node.uri, node.digest.sha256) == ("pkg:pypi/node@24.19.0?file_name=node.whl", "ab" * 32)


def test_its_pins_are_those_of_the_build() -> None:
    assert read_provenance(made()).pins == (
        Pin(
            component="node",
            target="x86_64",
            kind="pypi",
            package="node",
            version="24.19.0",
            file="node.whl",
            sha256="ab" * 32,
            size=7,
            license="MIT",
        ),
    )


def test_an_override_is_marked_and_has_no_package() -> None:
    provenance = read_provenance(made(overrides=["node"]))
    (node,) = provenance.inputs
    assert (node.annotations.override, node.annotations.origin, node.uri) == (True, "source", None)
    assert provenance.overrides == ("node",)
    assert provenance.pins == ()


def test_the_same_build_by_somebody_else_differs_in_the_run_only() -> None:
    other = {**record()["builder"], "id": "https://ci.example.org/x@y", "started": "2027-01-01T00:00:00Z"}
    other["finished"] = "2027-01-01T00:10:00Z"
    other["invocation"] = "https://ci.example.org/runs/1"
    first, second = document(), document(builder=other)
    assert first != second
    assert second["predicate"]["runDetails"]["metadata"]["invocationId"] == "https://ci.example.org/runs/1"
    for value in (first, second):
        del value["predicate"]["runDetails"]
    assert first == second


def test_its_bytes_are_canonical() -> None:
    data = made()
    assert data == made()
    assert data == (json.dumps(json.loads(data), indent=2, sort_keys=True) + "\n").encode()
    shuffled = dict(reversed(record().items()))
    again = json.loads(make_provenance(json.dumps(shuffled).encode()))
    del again["predicate"]["runDetails"]["byproducts"]
    first = json.loads(data)
    del first["predicate"]["runDetails"]["byproducts"]
    assert again == first


def without(*path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        place: Any = value
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def with_(*path: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def change(value: dict[str, Any]) -> None:
        place: Any = value
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


P = "predicate"
DEFINITION = (P, "buildDefinition")
RUN = (P, "runDetails")
DEPENDENCIES = (*DEFINITION, "resolvedDependencies")
NODE = (*DEPENDENCIES, -1)
SOURCE = (*DEPENDENCIES, 0)

BAD: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("no statement type", without("_type"), "_type"),
    ("another statement type", with_("_type", to="https://in-toto.io/Statement/v0.1"), "its type is"),
    ("a key too many", with_("extra", to=1), "extra"),
    ("no subject", with_("subject", to=[]), "0 subjects"),
    ("a subject without name", without("subject", 0, "name"), "a name and a digest"),
    ("a subject with a path", with_("subject", 0, "name", to="../x"), "isn't a bundle's"),
    ("a subject without digest", with_("subject", 0, "digest", to={}), "must have a SHA-256"),
    ("a short digest", with_("subject", 0, "digest", "sha256", to="ab"), "its subject's SHA-256"),
    ("no predicate", with_(P, to=None), "an object with a type"),
    ("no build definition", without(*DEFINITION), "buildDefinition"),
    ("no build type", without(*DEFINITION, "buildType"), "buildType"),
    ("no parameters", without(*DEFINITION, "externalParameters"), "externalParameters"),
    ("an unknown parameter", with_(*DEFINITION, "externalParameters", "shell", to="sh"), "shell"),
    ("no dependencies", without(*DEPENDENCIES), "resolvedDependencies"),
    ("no run", without(*RUN), "runDetails"),
    ("no builder", without(*RUN, "builder"), "builder"),
    ("a builder without an id", without(*RUN, "builder", "id"), "id"),
    ("a builder that is no URI", with_(*RUN, "builder", "id", to="somebody"), "builder.id"),
    ("a dependency without a digest", without(*NODE, "digest"), "digest"),
    ("a dependency with an empty digest", with_(*NODE, "digest", to={}), "sha256"),
    ("a dependency with a weak digest", with_(*NODE, "digest", to={"md5": "0" * 32}), "digest"),
    ("a dependency with half a digest", with_(*NODE, "digest", "sha256", to="ab" * 31), "sha256"),
    ("a dependency of no kind", with_(*NODE, "name", to="other"), "its name must be"),
    ("an unmarked override", with_(*NODE, "annotations", "origin", to="newer"), "marked as what it isn't"),
    ("an override that isn't listed", with_(*NODE, "annotations", "override", to=True), "its overrides are"),
    (
        "an override that no input has",
        with_(*DEFINITION, "internalParameters", "overrides", to=["node"]),
        "its overrides are",
    ),
    ("a package that isn't the pin's", with_(*NODE, "uri", to="pkg:pypi/x@1"), "isn't its pin's package"),
    ("an input without its pin", with_(*NODE, "annotations", "pin", to=None), "exactly if it is no source"),
    ("half a commit", with_(*SOURCE, "digest", "gitCommit", to="0123"), "gitCommit"),
    ("a definition too few", without(*DEPENDENCIES, 1), "its definitions are"),
    (
        "a definition with two digests",
        with_(*DEPENDENCIES, 1, "digest", to={"sha256": "a" * 64, "dirHash": "a" * 64}),
        "one digest",
    ),
    (
        "another platform than the one asked for",
        with_(*DEFINITION, "externalParameters", "libc", to="glibc"),
        "were asked for",
    ),
    ("a time without a zone", with_(*RUN, "metadata", "startedOn", to="2026-11-29T12:00:00"), "startedOn"),
    (
        "a time with an offset",
        with_(*RUN, "metadata", "startedOn", to="2026-11-29T12:00:00+01:00"),
        "startedOn",
    ),
    (
        "a day that doesn't exist",
        with_(*RUN, "metadata", "startedOn", to="2026-02-30T12:00:00Z"),
        "startedOn",
    ),
    ("a number as a time", with_(*RUN, "metadata", "finishedOn", to=1764417600), "finishedOn"),
    ("a text as a number", with_(*NODE, "annotations", "size", to="7"), "size"),
    ("a number as a truth", with_(*NODE, "annotations", "override", to=0), "override"),
]


@pytest.mark.parametrize(("change", "reason"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_isnt_whole_is_refused(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    value = document()
    change(value)
    with pytest.raises(ContractError) as caught:
        read_provenance(json.dumps(value).encode(), "The provenance p.json")
    assert reason in str(caught.value)
    assert str(caught.value).startswith("The provenance p.json")


def test_two_dependencies_of_one_name_are_refused() -> None:
    value = document()
    dependencies = value["predicate"]["buildDefinition"]["resolvedDependencies"]
    dependencies.append(copy.deepcopy(dependencies[-1]))
    with pytest.raises(ContractError, match="stands twice"):
        read_provenance(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_("predicateType", to="https://slsa.dev/provenance/v0.2"), "predicate type"),
        (with_(*DEFINITION, "buildType", to=f"{BUILD_TYPE}0"), "build type"),
    ],
)
def test_another_kind_of_provenance_doesnt_hold(
    change: Callable[[dict[str, Any]], None], reason: str
) -> None:
    value = document()
    change(value)
    with pytest.raises(SignatureError, match=reason):
        read_provenance(json.dumps(value).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b'{"_type": 1, "_type": 1}', b"[" * 5000])
def test_what_is_no_statement_at_all_is_refused(data: bytes) -> None:
    with pytest.raises(ContractError, match="isn't an in-toto statement"):
        read_provenance(data)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema_version": "capsule-build.record.v1"}, "another version"),
        ({"inputs": None}, "isn't complete"),
        ({"builder": {}}, "isn't complete"),
        ({"source": {"commit": "x", "modified": False, "repository": None}}, "gitCommit"),
        ({"epoch": "yesterday"}, "epoch"),
        ({"overrides": ["something"]}, "its overrides are"),
    ],
)
def test_a_record_that_isnt_whole_makes_no_provenance(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ContractError, match=reason):
        made(**changes)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a": 1, "a": 2}'])
def test_what_is_no_record_makes_no_provenance(data: bytes) -> None:
    with pytest.raises(ContractError, match="build record"):
        make_provenance(data)


@given(data=st.data())
def test_whatever_is_put_into_it_is_refused_or_read(data: st.DataObject) -> None:
    """Another value in any place ends in an answer: never in a crash, and never in a silent conversion."""
    value = document()
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    scalars = (
        st.none() | st.booleans() | st.integers(-1, 2**70) | st.floats(allow_nan=False) | st.text(max_size=8)
    )
    place[key] = data.draw(
        scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.text(max_size=4), scalars)
    )
    encoded = json.dumps(value).encode()
    try:
        provenance = read_provenance(encoded)
    except (ContractError, SignatureError):
        return
    assert json.loads(provenance.statement.to_bytes()) == json.loads(encoded)
