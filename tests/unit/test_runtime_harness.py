"""The specification of a harness: what it may say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.runtime import Strategy, UsageError, load_harness, parse_harness

CODEX: dict[str, object] = {
    "install_strategy": "install_if_missing",
    "install_command": "npm install -g @openai/codex",
    "setup_capsule_tag": "node24-v1",
    "check_command": "codex --version",
    "entrypoint": "codex",
}


def without(*keys: str, **changes: object) -> dict[str, object]:
    return {key: value for key, value in {**CODEX, **changes}.items() if key not in keys}


def test_the_specification_of_the_design_is_read() -> None:
    harness = parse_harness(CODEX)
    assert harness.strategy is Strategy.INSTALL_IF_MISSING
    assert harness.install_command == "npm install -g @openai/codex"
    assert harness.check_command == ("codex", "--version")
    assert (harness.entrypoint, harness.setup_capsule_tag, harness.needs) == ("codex", "node24-v1", ("npm",))
    assert (harness.install_timeout, harness.check_timeout) == (900.0, 60.0)


def test_what_is_not_said_follows_from_what_is() -> None:
    assert parse_harness(without("install_strategy")).strategy is Strategy.INSTALL_IF_MISSING
    assert parse_harness(without("entrypoint")).entrypoint == "codex"
    assert parse_harness(without("check_command")).check_command == ("codex", "--version")
    assert parse_harness(without(install_command=["npm", "i"])).install_command == ("npm", "i")
    assert parse_harness(without(install_command="A=1 pip install x")).needs == ("pip",)
    assert parse_harness(without(install_command="curl x | sh")).needs == ()
    assert parse_harness(without(needs=["node", "npx"])).needs == ("node", "npx")


def test_a_version_of_openhands_stands_for_its_packages() -> None:
    harness = parse_harness({"openhands_version": "1.23.0", "setup_capsule_tag": "python312-v1"})
    assert harness.install_command == "pip install openhands-sdk==1.23.0 openhands-tools==1.23.0"
    assert harness.needs == ("pip", "python")
    assert harness.check_command == ("python", "-c", "import openhands.sdk, openhands.tools")
    assert harness.entrypoint == "python"


def test_paths_are_relative_to_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    path = tmp_path / "harness.json"
    path.write_text(json.dumps({**CODEX, "wheelhouse": "wheels"}))
    harness = load_harness(path)
    assert harness.wheelhouse == tmp_path / "wheels"
    assert harness.needs == ("npm", "pip")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("python -c 'import x; y(\"$z\")'", ("python", "-c", 'import x; y("$z")')),
        (r"a \; b", ("a", ";", "b")),
        ('a "it\'s (fine); really"', ("a", "it's (fine); really")),
    ],
)
def test_a_check_is_taken_apart_as_a_shell_does(text: str, words: tuple[str, ...]) -> None:
    assert parse_harness(without(check_command=text)).check_command == words


@pytest.mark.parametrize("text", ["a | b", "a|b", "a; b", "a $HOME", 'a "$HOME"', "a > b", "a `b`", "a && b"])
def test_a_check_that_needs_a_shell_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no shell runs it"):
        parse_harness(without(check_command=text))


WRONG: list[tuple[dict[str, object], str]] = [
    (without(instal_command="x"), "no key 'instal_command'"),
    (without(install_strategy="maybe"), "'install_strategy' is 'maybe'"),
    (without("install_command"), "needs an 'install_command'"),
    (without("entrypoint", "check_command"), "neither an 'entrypoint' nor a 'check_command'"),
    (without(entrypoint="../codex"), "'entrypoint' is '../codex'"),
    (without(entrypoint="a//b"), "'entrypoint' is 'a//b'"),
    (without(entrypoint="-rf"), "'entrypoint' is '-rf'"),
    (without(setup_capsule_tag="https://example.org/x.tar.gz"), "is a URL"),
    (without(setup_capsule_tag="/x.tar.gz"), "is a path"),
    (without(check_command=""), "'check_command' is empty"),
    (without(check_command=[]), "'check_command' is empty"),
    (without(check_command=["a", 1]), "not a list of texts"),
    (without(check_command="'a"), "can't be taken apart"),
    (without(install_command="a\0b"), "NUL"),
    (without(install_timeout=0), "not more than 0 seconds"),
    (without(check_timeout=1e10), "'check_timeout' is more than a week"),
    (without(check_timeout=True), "not a number of seconds"),
    (without(check_timeout="5"), "not a number of seconds"),
    (without(install_env={"A=B": "1"}), "no name of a variable"),
    (without(install_env={"A": 1}), "not an object of texts"),
    (without(wheelhouse="nothing-here"), "which is not there"),
    (without(upload="nothing-here"), "which is not there"),
    (without(upload="/"), "'upload' and the strategy 'upload' belong together"),
    (without("install_command", install_strategy="upload"), "belong together"),
    (without(install_strategy="upload", upload="/"), "not installed by an 'install_command'"),
    (without("setup_capsule_tag", entrypoint="share/codex"), "lies below a setup root"),
    (without("setup_capsule_tag", npm_cache="/"), "go into a setup root"),
    (without(openhands_version="1.23.0"), "only one of both"),
    (without("install_command", openhands_version="1.23; rm -rf /"), "'openhands_version' is"),
    ({"openhands_version": "1.23.0"}, "needs a 'setup_capsule_tag'"),
    ({"install_strategy": "upload", "upload": "/", "entrypoint": "x"}, "needs a 'setup_capsule_tag'"),
]


@pytest.mark.parametrize(("document", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_named(document: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_harness(document)
    assert message in caught.value.message


@pytest.mark.parametrize("text", ['{"entrypoint": "a", "entrypoint": "b"}', "[]", "{", "", '{"a": NaN}'])
def test_a_file_that_can_be_read_in_two_ways_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "harness.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"harness\.json"):
        load_harness(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read: No such file"):
        load_harness(tmp_path / "none.json")


def test_a_files_name_is_quoted_as_it_is_and_the_nearest_key_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w1.json").write_text('{"entrypoint": "a", "instal_command": "x"}')
    with pytest.raises(UsageError) as caught:
        load_harness(Path("w1.json"))
    assert caught.value.message == "The harness 'w1.json': there is no key 'instal_command'."
    assert str(caught.value.hint).startswith("Is it 'install_command'? The keys are install_strategy, ")
    Path("w1.json").write_text('{"entrypoint": "a", "zzz": "x"}')
    with pytest.raises(UsageError) as caught:
        load_harness(Path("w1.json"))
    assert str(caught.value.hint).startswith("The keys are ")


def test_two_specifications_have_one_digest_only_if_they_say_the_same() -> None:
    said = [
        parse_harness(CODEX),
        parse_harness(without(entrypoint="other")),
        parse_harness(without(needs=[])),
    ]
    assert len({harness.digest for harness in said}) == 3
    assert parse_harness(dict(reversed(CODEX.items()))).digest == said[0].digest


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(document=st.dictionaries(st.sampled_from([*CODEX, "needs", "install_env", "check_timeout"]), VALUES))
def test_whatever_is_given_is_read_or_refused_in_words(document: dict[str, object]) -> None:
    try:
        harness = parse_harness({**CODEX, **document})
    except UsageError:
        return
    assert harness.check_command
    assert harness.entrypoint
