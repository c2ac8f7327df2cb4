"""A task bundle's bytes: what they hold, and that none can be another."""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capsule_build.runtime.errors import ContractError
from capsule_build.sandbox.artifact import read_artifact
from capsule_build.sandbox.granted import describe
from capsule_build.sandbox.guests import Guest, compare, guest_of
from capsule_build.sandbox.options import ConfigError, Folder, Policy
from tests.examples import examples
from tests.task_bundles import collected, packed

if TYPE_CHECKING:
    from collections.abc import Callable

WHOLE = packed(collected(own={"helper.py": b"VALUE = 5\n"}), version="1.0.0")


def test_a_file_holds_what_was_packed() -> None:
    artifact = read_artifact(WHOLE, "hello.wasm")
    assert artifact.file.path == "hello.py"
    assert artifact.file.entry == "main"
    assert artifact.guest == guest_of("python")
    assert artifact.version == "1.0.0"
    assert artifact.contents["helper.py"] == b"VALUE = 5\n"
    assert len(artifact.policy_sha256) == 64


@settings(max_examples=examples(400))
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


@settings(max_examples=examples(500))
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
