"""The options of a task: every format that is allowed, and what is refused."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.sandbox.options import (
    COMPUTE,
    MAX_MEMORY,
    ConfigError,
    Folder,
    Policy,
    make_policy,
    read_compute,
    read_folders,
    read_hosts,
    read_retries,
    read_size,
    read_timeout,
    read_variables,
)
from capsule_build.sandbox.running import _more_compute, _more_memory


@pytest.mark.parametrize(
    ("given_", "fuel"),
    [
        ("LOW", 100_000_000),
        ("medium", 2_000_000_000),
        ("HIGH", 50_000_000_000),
        ("1000000", 1_000_000),
        (42, 42),
    ],
)
def test_compute_is_a_level_or_an_exact_number(given_: Any, fuel: int) -> None:
    assert read_compute(given_) == fuel


@pytest.mark.parametrize("given_", ["", "TINY", "-1", "1.5", "1e6", 0, -3, True, None, [], "٣", "9" * 30])
def test_any_other_compute_is_refused(given_: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        read_compute(given_)


def test_custom_as_a_word_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="give the fuel itself"):
        read_compute("CUSTOM")


@pytest.mark.parametrize(
    ("given_", "size"),
    [
        ("512MB", 512 << 20),
        ("2GB", 2 << 30),
        ("64 KB", 64 << 10),
        ("64kb", 64 << 10),
        ("100", 100),
        ("100B", 100),
        (1234, 1234),
        ("4GB", MAX_MEMORY),
    ],
)
def test_ram_is_a_size_by_1024(given_: Any, size: int) -> None:
    assert read_size(given_) == size


@pytest.mark.parametrize("given_", ["", "MB", "1.5GB", "-1", "5GB", "1TB", "64M", 0, True, None, "1 2", [1]])
def test_any_other_ram_is_refused(given_: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|can't have"):
        read_size(given_)


@pytest.mark.parametrize(
    ("given_", "milliseconds"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1m30s", 90_000),
        ("1h 2m", 3_720_000),
        ("1.5s", 1500),
    ],
)
def test_a_timeout_is_a_time_or_several(given_: str, milliseconds: int) -> None:
    assert read_timeout(given_) == milliseconds


@pytest.mark.parametrize("given_", ["", "30", "0s", "-1s", "1d", "s", "1s!", 30, None, "999999999999h"])
def test_any_other_timeout_is_refused(given_: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        read_timeout(given_)


@given(st.text())
def test_no_text_makes_a_reader_fail_otherwise(text: str) -> None:
    for read in (read_compute, read_size, read_timeout, lambda item: read_folders([item])):
        with contextlib.suppress(ValueError):
            read(text)


@given(st.text())
def test_a_host_that_is_taken_has_no_way_round_its_name(text: str) -> None:
    try:
        (host,) = read_hosts([text])
    except ValueError:
        return
    assert not set(host) & set("/\\@? #%\n\t")
    assert host == host.lower()


@pytest.mark.parametrize(
    ("given_", "folder"),
    [
        ("./data", Folder("./data", True)),
        ("./data:ro", Folder("./data", False)),
        ({"path": "./data"}, Folder("./data", True)),
        ({"path": "data", "mode": "ro"}, Folder("data", False)),
        ({"path": "data", "mode": "read-only"}, Folder("data", False)),
        ({"path": "data", "mode": "read-write"}, Folder("data", True)),
    ],
)
def test_a_folder_has_a_mode(given_: Any, folder: Folder) -> None:
    assert read_folders([given_]) == (folder,)


@pytest.mark.parametrize(
    "given_",
    [
        "",
        "/etc",
        "~/x",
        "../x",
        "a/../../x",
        "a/..",
        "./data:rx",
        "a\0b",
        "\ud800",
        5,
        {"path": "x", "mode": "w"},
        {"path": "x", "other": 1},
        {"mode": "ro"},
        {"path": 5},
    ],
)
def test_a_folder_that_is_absolute_climbs_or_has_another_form_is_refused(given_: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_folders([given_])


@pytest.mark.parametrize(
    "given_", ["https://x.com", "x.com/path", "x.com:80", "a b", "", "*x.com", "x..com", 5]
)
def test_a_host_is_a_name_alone(given_: Any) -> None:
    with pytest.raises(ValueError, match="host"):
        read_hosts([given_])


def test_hosts_may_be_names_patterns_and_addresses() -> None:
    given_ = ["API.example.com", "*.anthropic.com", "*", "127.0.0.1", "[::1]", "localhost"]
    assert read_hosts(given_) == ("api.example.com", "*.anthropic.com", "*", "127.0.0.1", "::1", "localhost")


def test_names_of_variables_are_names() -> None:
    assert read_variables(["API_KEY"]) == ("API_KEY",)
    for wrong in (["A=B"], ["a b"], [""], "API_KEY", [1], {"A": 1}):
        with pytest.raises(ValueError, match=r"name|list"):
            read_variables(wrong)


def test_retries_are_a_small_number() -> None:
    assert read_retries(3) == 3
    for wrong in (-1, 101, True, "3", 1.0, None):
        with pytest.raises(ValueError, match="must be"):
            read_retries(wrong)


def test_a_policy_without_options_grants_nothing() -> None:
    policy = make_policy({}, name="t", function="f", where="x.py")
    assert policy == Policy("t", "f", False, 2_000_000_000, None, None, 0, (), (), ())


def test_an_error_of_an_option_names_place_option_and_value() -> None:
    with pytest.raises(ConfigError, match=r"x\.py, line 3: ram='lots': it must be a size"):
        make_policy({"ram": "lots"}, name="t", function="f", where="x.py, line 3")


def test_an_unknown_option_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no option 'cpu'.*compute, ram, timeout"):
        make_policy({"cpu": 1}, name="t", function="f", where="x.py")


def test_who_used_up_a_limit_is_told_a_higher_one() -> None:
    high = COMPUTE["HIGH"]
    assert _more_compute(Policy("t", "f"), COMPUTE["MEDIUM"]) == (
        f' Give it more: compute="HIGH" ({high}), or any number.'
    )
    assert _more_compute(Policy("t", "f", fuel=high), high) == (
        f" Give it more: compute={2 * high}, or any number."
    )
    assert "its caller's" in _more_compute(Policy("t", "f", fuel=high), high - 1)
    for memory in (64 << 20, 3 << 30):
        said = _more_memory(memory).partition('"')[2].rpartition('"')[0]
        assert memory < read_size(said) <= MAX_MEMORY
    assert _more_memory(MAX_MEMORY) == " No task can have more."


@pytest.mark.parametrize("name", ["", "a\nb", 5, None, "x" * 201])
def test_the_name_of_a_task_is_a_printable_text(name: Any) -> None:
    with pytest.raises(ConfigError, match="name of a task"):
        make_policy({}, name=name, function="f", where="x.py")
