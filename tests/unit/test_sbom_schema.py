"""The schema that SBOMs are held against: strictly, with its formats, whatever is in the document."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime.errors import ContractError
from capsule_build.sbom import check_sbom, outer_sbom
from capsule_build.sbom.schema import is_date_time, is_reference
from tests.unit.test_sbom_outer import INNER

if TYPE_CHECKING:
    from collections.abc import Iterator

ODD: list[object] = [None, 1, True, "x", [], {}, [1], [None], [[]], [{}], {"a": 1}]


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a document but the document itself."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in pairs:
        yield (*above, key)
        yield from places(inside, (*above, key))


def changed(document: dict[str, Any], place: tuple[Any, ...], value: object) -> dict[str, Any]:
    copied = copy.deepcopy(document)
    holder: Any = copied
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return copied


@pytest.mark.slow
def test_whatever_stands_anywhere_is_an_error_of_the_document_and_not_of_its_reader() -> None:
    root = INNER["metadata"]["component"]
    full = {**INNER, "metadata": {"component": {**root, "properties": [], "externalReferences": []}}}
    refused = 0
    for place in places(full):
        for value in ODD:
            data = json.dumps(changed(full, place, value)).encode()
            for read in (check_sbom, lambda data: outer_sbom(data, filename="x", sha256="ab" * 32, size=1)):
                try:
                    read(data)
                except ContractError:
                    refused += 1
    assert refused > 300


def test_an_sbom_of_thousands_of_files_is_checked_in_no_time() -> None:
    files = [
        {
            "type": "file",
            "name": f"lib/module-{number}.py",
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(str(number).encode()).hexdigest()}],
        }
        for number in range(4000)
    ]
    check_sbom(json.dumps(INNER).encode())
    begun = time.process_time()
    check_sbom(json.dumps(changed(INNER, ("components", 1, "components"), files)).encode())
    # Pair by pair it takes a minute.
    assert time.process_time() - begun < 10
    with pytest.raises(ContractError, match="non-unique"):
        check_sbom(json.dumps(changed(INNER, ("components", 1, "components"), [*files, files[0]])).encode())


def test_components_in_components_without_end_are_refused() -> None:
    inside: dict[str, Any] = {"type": "library", "name": "last"}
    for number in range(300):
        inside = {"type": "library", "name": f"part-{number}", "components": [inside]}
    with pytest.raises(ContractError, match="nested too deeply"):
        check_sbom(json.dumps({**INNER, "components": [*INNER["components"], inside]}).encode())


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (("components", 0, "type"), "thing", r"at \['components'\]\[0\]\['type'\]: 'thing' is not one of"),
        (("surprise",), 1, "at its top: Additional properties are not allowed"),
        (("metadata", "timestamp"), "2024-01-01", "is not a 'date-time'"),
        (("components", 0, "externalReferences"), [{"type": "vcs", "url": "http://a b"}], "not"),
        (
            ("components",),
            [INNER["components"][1]] * 2 + [{"type": "library", "name": "n" * 999}],
            "non-unique",
        ),
    ],
)
def test_what_breaks_it_is_named_with_its_place(place: tuple[Any, ...], value: object, reason: str) -> None:
    with pytest.raises(ContractError, match=reason) as caught:
        check_sbom(json.dumps(changed(INNER, place, value)).encode())
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "../a/b?c=d&e#f",
        "a/b:c",
        "https://user:word@example.org:8080/a%20b/?q=(1)#top",
        "https://[::1]/",
        "http://[v7.a:b]/x",
        "urn:uuid:3e671687-395b-41f5-a30f-a58921a69b79",
        "mailto:somebody@example.org",
        "//example.org",
        "https://b\u00fccher.example/\u540d/\U00020000",
        "?\ue000",
    ],
)
def test_references(text: str) -> None:
    assert is_reference(text)


@pytest.mark.parametrize(
    "text",
    [
        "a b",
        "1:a",
        "a%2",
        "a%zz",
        "<a>",
        '"',
        "a\\b",
        "a\nb",
        "a\x00",
        "https://[::1",
        "https://[::1%eth0]/",
        "https://[1.2.3.4]/",
        "https://a:b:c/",
        "https://a@b@c/",
        "#a#b",
        "#\ue000",
        "\ufdd0",
        "\U0001ffff",
    ],
)
def test_what_is_no_reference(text: str) -> None:
    assert not is_reference(text)


@pytest.mark.parametrize(
    "text", ["2024-02-29T23:59:59Z", "2024-01-01t00:00:00.125z", "2024-01-01T00:00:00+23:59"]
)
def test_moments(text: str) -> None:
    assert is_date_time(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29T00:00:00Z",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00Z\n",
        "\u0662024-01-01T00:00:00Z",
    ],
)
def test_what_is_no_moment(text: str) -> None:
    assert not is_date_time(text)


def test_no_general_parser_of_addresses_is_needed() -> None:
    # jsonschema takes it where it is installed, and making its parser takes seconds: no dependency brings it.
    program = (
        "import sys; sys.modules['rfc3987_syntax'] = None\n"
        "from capsule_build.sbom import check_sbom\n"
        "check_sbom(sys.stdin.buffer.read())\n"
    )
    bad = changed(INNER, ("components", 0, "externalReferences"), [{"type": "vcs", "url": "a b"}])
    for document, code in ((INNER, 0), (bad, 1)):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(document).encode(),
            capture_output=True,
            check=False,
        )
        assert (ran.returncode, b"'a b' is not valid" in ran.stderr) == (code, bool(code)), (
            ran.stderr.decode()
        )
