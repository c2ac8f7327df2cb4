from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule_build.engine.limits import (
    cgroups_are_hybrid,
    configured_files,
    may_raise_limits,
    merged_configuration,
    podman_needs,
    to_toml,
)
from capsule_build.runtime.errors import UsageError


def test_hybrid_cgroups_are_controllers_of_v1_with_a_tree_of_v2_beside_them(tmp_path: Path) -> None:
    assert not cgroups_are_hybrid(tmp_path)
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified/cgroup.procs").touch()
    assert cgroups_are_hybrid(tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    assert not cgroups_are_hybrid(tmp_path)


@pytest.mark.parametrize(("mask", "may"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_the_right_to_raise_limits_is_capability_24(tmp_path: Path, mask: str, may: bool) -> None:
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{mask}\n")
    assert may_raise_limits(tmp_path / "status") is may


def test_podman_is_told_what_the_machine_needs_and_no_more() -> None:
    assert podman_needs(hybrid=False, limited=False) == {}
    assert set(podman_needs(hybrid=False, limited=True)) == {"containers"}
    both = podman_needs(hybrid=True, limited=True)
    assert both["engine"] == {"runtime": "runc"}
    nofile, nproc = both["containers"]["default_ulimits"]
    assert nofile.startswith("nofile=")
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert int(nproc.removeprefix("nproc=").partition(":")[0]) <= most


def test_what_other_configuration_says_stays_unless_the_machine_needs_otherwise(tmp_path: Path) -> None:
    first, second = tmp_path / "a.conf", tmp_path / "b.conf"
    first.write_text('[engine]\nruntime = "crun"\nnum_locks = 9\n[engine.runtimes]\nkata = ["/k"]\n')
    second.write_text("[containers]\ninit = true\n[engine]\nnum_locks = 10\n")
    merged = tomllib.loads(merged_configuration((first, second), {"engine": {"runtime": "runc"}}))
    assert merged == {
        "engine": {"runtime": "runc", "num_locks": 10, "runtimes": {"kata": ["/k"]}},
        "containers": {"init": True},
    }


def test_a_configuration_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.conf").write_text("[engine\n")
    with pytest.raises(UsageError, match=r"bad\.conf"):
        merged_configuration((tmp_path / "bad.conf",), {})


def test_a_users_files_count_for_users_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    own = tmp_path / ".config/containers/containers.conf.d/x.conf"
    own.parent.mkdir(parents=True)
    own.touch()
    assert own in configured_files(tmp_path, root=False)
    assert own not in configured_files(tmp_path, root=True)


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=20)
_VALUES = st.one_of(_TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.lists(_TEXT, max_size=3))


@given(st.dictionaries(_TEXT, st.one_of(_VALUES, st.dictionaries(_TEXT, _VALUES, max_size=3)), max_size=4))
def test_a_written_table_reads_back_the_same(table: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(table)) == table
