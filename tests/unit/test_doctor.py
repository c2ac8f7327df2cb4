from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
import typer
from typer.testing import CliRunner

from capsule_build import doctor
from capsule_build.cli import doctor as command
from capsule_build.doctor import Check
from capsule_build.engine import Engine, EngineInfo
from capsule_build.engine.protocol import EngineDownError
from capsule_build.runtime.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

INFO = EngineInfo("podman", "5.8.0", "4.3.1", "4.3.1", "overlay", "/", "crun", "amd64", True, "unix:///s")
NEEDS = {"containers": {"default_ulimits": ["nofile=20:20"]}, "engine": {"runtime": "runc"}}
ENGINES = {"docker": None, "podman": None}


@dataclass
class Told:
    """An engine that has a description and nothing else."""

    closed: bool = False

    def info(self) -> EngineInfo:
        return INFO

    def close(self) -> None:
        self.closed = True


def down() -> Engine:
    raise EngineDownError("It is down.", hint="Start it.")


def test_an_engine_that_answers_is_described_and_closed() -> None:
    engine = Told()
    check, info = doctor.check_engine("podman", lambda: cast("Engine", engine), hybrid=False)
    assert check.status == "ok"
    assert "Podman 4.3.1 (API 4.3.1, overlay, crun, rootless) at unix:///s" in check.found
    assert info == INFO
    assert engine.closed


def test_an_engine_that_cannot_be_used_says_why_and_what_to_do() -> None:
    assert doctor.check_engine("docker", down, hybrid=False) == (
        Check("docker", "fail", "It is down.", "Start it."),
        None,
    )


def test_crun_on_hybrid_cgroups_is_a_failure_before_a_build_meets_it() -> None:
    check, _ = doctor.check_engine("podman", lambda: cast("Engine", Told()), hybrid=True)
    assert check.status == "fail"
    assert "runc" in (check.advice or "")


def test_an_engine_that_is_down_is_no_failure_where_another_works() -> None:
    checks = [Check("docker", "fail", "down"), Check("podman", "ok", "there")]
    judged = doctor.judge(checks, ENGINES)
    assert judged.usable
    assert [check.status for check in judged.checks] == ["warn", "ok"]


def test_without_any_engine_nothing_is_usable() -> None:
    checks = [Check("docker", "fail", "down"), Check("podman", "fail", "down"), Check("cache", "ok", "there")]
    judged = doctor.judge(checks, ENGINES)
    assert not judged.usable
    assert [check.status for check in judged.checks] == ["fail", "fail", "ok"]


def test_cgroups_that_need_nothing_are_fine() -> None:
    assert doctor.check_cgroups({}, None).status == "ok"


def test_runc_that_is_needed_and_missing_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_cgroups(NEEDS, None)
    assert check.status == "warn"
    assert "apt-get install runc" in (check.advice or "")


def test_a_configuration_of_the_users_own_is_told_what_it_lacks(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text('[engine]\nruntime = "runc"\n')
    check = doctor.check_cgroups(NEEDS, str(own))
    assert check.status == "warn"
    assert '[containers]\ndefault_ulimits = ["nofile=20:20"]' in (check.advice or "")
    assert "runtime" not in (check.advice or "")
    own.write_text('[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=20:20"]\n')
    assert doctor.check_cgroups(NEEDS, str(own)).status == "ok"
    own.write_text("[engine\n")
    assert "can't be read" in doctor.check_cgroups(NEEDS, str(own)).found


@pytest.mark.parametrize(("limit", "status"), [(1024, "warn"), (4096, "ok"), (-1, "ok")])
def test_few_open_files_are_a_warning(limit: int, status: str) -> None:
    assert doctor.check_open_files(limit).status == status


def test_a_folder_that_is_not_there_yet_is_judged_by_where_it_will_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.check_folder("dist", tmp_path / "a/b").name == "dist"
    monkeypatch.setattr(doctor, "SPACE_NEEDED", 1 << 60)
    check = doctor.check_folder("cache", tmp_path / "a/b")
    assert check.status == "warn"
    assert "cache prune" in (check.advice or "")


def test_a_folder_that_cannot_be_written_to_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "can't be written to" in doctor.check_folder("cache", tmp_path / "c").found


def test_a_registry_out_of_reach_is_a_warning_that_says_how_to_build_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise InputError("It can't be reached.")

    monkeypatch.setattr("capsule_build.fetch.pypi.find", unreachable)
    monkeypatch.setattr("capsule_build.fetch.debian.mirror", unreachable)
    judged = doctor.examine(cache=tmp_path, dist=tmp_path, engines={"docker": down, "podman": down})
    found = {check.name: check for check in judged.checks}
    for name in ("python index", "debian mirror"):
        assert found[name].status == "warn"
        assert "pins export" in (found[name].advice or "")
    assert {"docker", "podman", "cgroups", "open files", "cache", "dist"} < set(found)


def test_the_command_prints_json_for_machines_and_exits_with_4_without_an_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = (Check("docker", "fail", "It is [down].", "Start it."),)
    monkeypatch.setattr(command, "examine", lambda **_: doctor.Diagnosis(checks, usable=False))
    app = typer.Typer()
    command.register(app)
    plain = CliRunner().invoke(app, [])
    assert plain.exit_code == 4
    assert "fail  docker: It is [down].\n        Start it.\n" in plain.stdout
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == 4
    document = json.loads(result.stdout)
    assert document["schema_version"] == "capsule-build.doctor.v1"
    assert document["usable"] is False
    assert document["checks"] == [
        {"name": "docker", "status": "fail", "found": "It is [down].", "advice": "Start it."}
    ]
    monkeypatch.setattr(command, "examine", lambda **_: doctor.Diagnosis(checks, usable=True))
    assert CliRunner().invoke(app, []).exit_code == 0
