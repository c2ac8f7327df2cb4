"""The words of `capsule run` and `exec`, read by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.cli.capsule.arguments import Arguments, read_arguments


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["run"], Arguments("run")),
        (["run", "a.py", "x", "y"], Arguments("run", "a.py", ("x", "y"))),
        (["exec", "a.wasm", "--json"], Arguments("exec", "a.wasm", as_json=True)),
        (
            ["run", "--verbose", "a.py", "--shared-compute"],
            Arguments("run", "a.py", verbose=True, shared_compute=True),
        ),
        (["run", "a.py", "--mount", "x", "--mount=y:ro"], Arguments("run", "a.py", mounts=("x", "y:ro"))),
        (
            ["run", "--packages", "p", "a.py", "-1", "-"],
            Arguments("run", "a.py", ("-1", "-"), packages=("p",)),
        ),
        (["run", "a.py", "--args-file", "f"], Arguments("run", "a.py", args_file="f")),
        (["run", "a.py", "--", "--json", "--", "-x"], Arguments("run", "a.py", ("--json", "--", "-x"))),
        (["run", "a.py", ""], Arguments("run", "a.py", ("",))),
        (
            ["exec", "a.wasm", "--public-key", "k", "--builder=b"],
            Arguments("exec", "a.wasm", trust={"public_key": "k", "builder": "b"}),
        ),
        (
            ["exec", "--identity=i", "--issuer=u", "--trust-root", "r", "a.wasm"],
            Arguments("exec", "a.wasm", trust={"identity": "i", "issuer": "u", "trust_root": "r"}),
        ),
        (
            ["exec", "--public-key", "k", "a.wasm", "--public-key=mine"],
            Arguments("exec", "a.wasm", trust={"public_key": "mine"}, repeated="--public-key"),
        ),
        (
            ["exec", "--trust-root=r", "a.wasm", "--trust-config=mine"],
            Arguments("exec", "a.wasm", trust={"trust_root": "mine"}, repeated="--trust-config"),
        ),
        (["exec", "a", "--lock", "l", "--data-dir=d"], Arguments("exec", "a", lock="l", data_dir="d")),
        (["exec", "a.wasm", "--", "--public-key", "k"], Arguments("exec", "a.wasm", ("--public-key", "k"))),
    ],
)
def test_words_are_read(words: list[str], arguments: Arguments) -> None:
    assert read_arguments(words) == arguments


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--help"],
        ["run", "-h"],
        ["run", "a.py", "--nope"],
        ["run", "--mount"],
        ["run", "a.py", "--public-key", "k"],
        ["run", "a.py", "--lock", "l"],
        ["exec", "--issuer"],
        ["exec", "a.wasm", "--packages", "p"],
    ],
)
def test_help_and_what_is_wrong_are_left_to_typer(words: list[str]) -> None:
    assert read_arguments(words) is None


@given(st.lists(st.text()))
def test_any_words_after_two_dashes_are_the_tasks(words: list[str]) -> None:
    found = read_arguments(["run", "a.py", "--", *words])
    assert found == Arguments("run", "a.py", tuple(words))
