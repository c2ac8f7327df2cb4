"""`release` and `reproduce` as a person types them: what they print, and what stays when a service fails."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.cli import app
from capsule_build.release.identity import TOKEN_VARIABLE
from tests import fakes, tiny_recipe
from tests.releases import without_schema, write_keys
from tests.servers import isolate
from tests.sigstore_instance import IDENTITY, ISSUER, Instance, RefusalError, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from capsule_build.engine import Engine

pytestmark = pytest.mark.slow

GLIBC, MUSL = (f"tiny-v1-linux-x86_64-{libc}.tar.gz" for libc in ("glibc", "musl"))


@dataclass
class Desk:
    """A small world, and a command line to work in it."""

    world: fakes.World
    capfd: pytest.CaptureFixture[str]

    @property
    def lock(self) -> Path:
        return self.world.folder / "registry.lock.json"

    @property
    def where(self) -> tuple[object, ...]:
        return ("--dist", self.world.dist, "--lock", self.lock)

    def run(self, *argv: object) -> tuple[int, str, str]:
        code = app.run([str(word) for word in argv])
        said = self.capfd.readouterr()
        assert "Traceback" not in said.err
        assert "itself failed" not in said.err
        return code, said.out, said.err

    def json(self, *argv: object) -> dict[str, Any]:
        code, out, err = self.run(*argv, "--json")
        assert code == 0, err
        document = json.loads(out)
        assert isinstance(document, dict)
        return document

    def names(self) -> list[str]:
        return sorted(path.name for path in self.world.dist.iterdir())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Desk:
    isolate(monkeypatch)
    for name in (TOKEN_VARIABLE, "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    world = fakes.World(tmp_path)
    monkeypatch.setenv("CAPSULE_RECIPES", str(world.recipes))
    monkeypatch.setenv("CAPSULE_CACHE_DIR", str(world.cache.root))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    monkeypatch.setattr("capsule_build.record.source_of", lambda _checkout: None)
    monkeypatch.setattr("capsule_build.release.selection.host_architecture", lambda: "x86_64")
    monkeypatch.setattr("capsule_build.release.reproducing.host_architecture", lambda: "x86_64")
    (tmp_path / "code").mkdir()
    monkeypatch.setattr("capsule_build.record.package_dir", lambda: tmp_path / "code")
    without_schema(monkeypatch)

    @contextlib.contextmanager
    def select(choice: str | None, *, say: Callable[[str], None]) -> Iterator[Engine]:
        world.engine.calls.append(f"open {choice}")
        yield world.engine

    monkeypatch.setattr("capsule_build.engine.select_engine", select)
    return Desk(world, capfd)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    return write_keys(tmp_path)


def test_a_dry_run_says_what_would_be_built_and_does_nothing(desk: Desk) -> None:
    said = desk.json("release", "--all", "--dry-run", *desk.where)
    assert said["schema_version"] == "capsule-build.release.v1"
    assert [(item["recipe"], item["libc"], item["filename"], item["why"]) for item in said["bundles"]] == [
        ("tiny", "glibc", GLIBC, "isn't there"),
        ("tiny", "musl", MUSL, "isn't there"),
    ]
    assert (desk.names(), desk.lock.exists(), desk.world.engine.calls) == ([], False, [])
    code, out, _ = desk.run("release", "tiny:musl", "--dry-run", *desk.where)
    assert code == 0
    assert MUSL in out
    assert "it isn't there" in out


def test_a_release_says_what_it_did(desk: Desk, keys: tuple[Path, Path]) -> None:
    key, public_key = keys
    code, out, err = desk.run("release", "--all", *desk.where, "--key", key)
    assert code == 0, err
    assert "tiny 1.2.3 for linux-x86_64-musl: it isn't there." in err
    assert f"Signed {MUSL}" in err
    assert out.count("built") == 2
    assert "isn't there" not in out
    assert f"{desk.lock}: 2 bundles changed." in out
    assert "tiny-v1 linux-x86_64-musl: nothing -> " in out
    said = desk.json("release", "--all", *desk.where, "--key", key)
    assert [(item["finished_before"], item["why"]) for item in said["bundles"]] == [(True, None)] * 2
    assert (said["changes"], said["lock"]) == ([], str(desk.lock))
    out = desk.run("release", "--all", *desk.where, "--key", key)[1]
    assert f"{desk.lock} is up to date." in out
    assert desk.json("verify", "--dist", desk.world.dist, "--public-key", public_key)["ok"]
    assert desk.run("lock", "--check", *desk.where)[0] == 0


def test_without_signing_there_is_no_lock(desk: Desk) -> None:
    said = desk.json("release", "tiny", "--libc", "musl", "--no-sign", *desk.where)
    assert (said["signer"], said["lock"], said["changes"]) == (None, None, [])
    assert desk.names() == [
        MUSL,
        *(f"{MUSL}.{end}" for end in ("build.json", "cdx.json", "provenance.json", "sha256")),
    ]
    assert not desk.lock.exists()


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "Which capsules?"),
        (("--all", "--no-sign", "--key", "k"), 2, "--no-sign neither signs nor locks"),
        (("--all", "--base-url", "http://example.org"), 2, "neither https nor on this machine"),
        (("--all", "--container-cli", "lxc"), 2, "is not an engine"),
        (("--all", "--key", "absent.pem"), 2, "The key absent.pem can't be read"),
        (("--all", "--prebuilt"), 1, f"{GLIBC} isn't there"),
        (("tiny", "--source", "tool"), 2, "not of the form"),
        (
            ("tiny", "--runtime-version", "tool=9.9.9"),
            2,
            "--runtime-version tool '9.9.9' is not a version of",
        ),
        (
            ("tiny", "--runtime-version", "tiny:tool=abc"),
            2,
            "--runtime-version tiny:tool 'abc' is not an exact",
        ),
    ],
)
def test_what_can_not_be_released(desk: Desk, argv: tuple[str, ...], code: int, message: str) -> None:
    found, out, err = desk.run("release", *argv, *desk.where)
    assert (found, out) == (code, ""), err
    assert message in err
    assert err.count("error:") == 1
    assert desk.world.engine.calls == []


def test_a_lock_whose_folder_is_not_there_is_known_before_any_work(
    desk: Desk, keys: tuple[Path, Path]
) -> None:
    lock = desk.world.folder / "absent/x.json"
    code, out, err = desk.run("release", "--all", *desk.where, "--key", keys[0], "--lock", lock)
    assert (code, out) == (2, "")
    assert f"error: The folder of {lock} isn't there." in err
    assert (desk.names(), desk.world.engine.calls) == ([], [])


@pytest.fixture
def instance(desk: Desk) -> Iterator[Instance]:
    with running() as started:
        yield started


@pytest.mark.parametrize(
    ("service", "fault", "message"),
    [
        ("fulcio", RefusalError(401, "who are you"), "who are you"),
        ("rekor", RefusalError(500, "out of order"), "Rekor"),
        ("rekor", "hang", "didn't answer within 0.5 s"),
        ("tsa", RefusalError(503, "out of order"), "timestamp authority"),
    ],
)
def test_a_service_that_fails_leaves_no_half_release_and_the_next_try_goes_on(
    desk: Desk, instance: Instance, service: str, fault: RefusalError | str, message: str
) -> None:
    token = desk.world.folder / "token"
    token.write_text(instance.provider.token())
    config = instance.write_trust_config(desk.world.folder / "config.json", rekor=2, tsa=True)
    release = ("release", "--all", *desk.where, "--identity-token", token, "--trust-config", config)
    instance.faults[service] = fault
    code, out, err = desk.run(*release, "--timeout", "0.5")
    assert code != 0
    assert out == ""
    assert message in " ".join(err.split())
    assert "The same command goes on from here." in err
    assert token.read_text() not in err
    assert not [name for name in desk.names() if "sigstore" in name]
    assert not desk.lock.exists()

    instance.faults.clear()
    desk.world.engine.calls.clear()
    assert [item["why"] for item in desk.json(*release)["bundles"]] == [None, None]
    assert desk.world.engine.calls == []
    root = instance.write_trusted_root(desk.world.folder / "root.json")
    who = ("--identity", IDENTITY, "--issuer", ISSUER, "--trust-root", root)
    assert desk.json("verify", "--dist", desk.world.dist, *who)["ok"]


@pytest.mark.parametrize("command", [("verify", "--public-key", "key.pub.pem"), ("reproduce",), ("sign",)])
def test_a_bundle_that_lies_in_dist_is_found_by_the_hint(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr("capsule_build.release.outputs.default_dist", lambda: desk.world.dist)
    monkeypatch.chdir(desk.world.folder)
    desk.world.dist.mkdir(exist_ok=True)
    assert desk.run(*command, MUSL) == (2, "", f"error: There is no bundle {MUSL}.\n")
    (desk.world.dist / MUSL).write_bytes(b"a bundle")
    said = f"error: There is no bundle {MUSL}.\nIt lies in dist/: {desk.world.dist.name}/{MUSL}\n"
    assert desk.run(*command, MUSL) == (2, "", said)


def test_licences_are_listed_by_component_with_what_there_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.json("release", "tiny:glibc", "--no-sign", *desk.where)
    monkeypatch.setenv("COLUMNS", "40")
    code, out, _ = desk.run("inspect", "--licenses", desk.world.dist / GLIBC)
    assert code == 0
    # A package of npm says nothing of its source: there is no empty line for it.
    version = tiny_recipe.INNER_VERSION
    assert f"\ninner {version}  Artistic-2.0\n  texts  npm/inner@{version}/LICENSE\n" in out
    assert "\nhelper 1:2.0-1  MIT\n  texts   helper/LICENSE\n  source  pkg:deb/debian/helper@" in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []


def test_reproduce_says_whether_the_bundles_are_the_same(desk: Desk) -> None:
    desk.json("release", "tiny:glibc", "--no-sign", *desk.where)
    bundle = desk.world.dist / GLIBC
    said = desk.json("reproduce", bundle)
    assert (said["reproduced"], said["members"], said["not_as_then"]) == (True, [], [])
    code, out, _ = desk.run("reproduce", bundle)
    assert (code, out) == (0, f"{bundle} is reproduced: SHA-256 {said['sha256']}.\n")

    desk.world.engine.files["runtime/tool/data"] = b"other data"
    with (desk.world.recipes / "tiny.toml").open("a") as stream:
        stream.write("# more\n")
    code, out, err = desk.run("reproduce", bundle, "--output", desk.world.folder / "again.tar.gz")
    assert code == 1
    assert "note: not as it was then: definition: recipe" in err
    assert f"{bundle} is not reproduced." in out
    assert "  runtime/tool/data: size 4 -> 10, content sha256:" in out
    assert (desk.world.folder / "again.tar.gz").is_file()
    code, out, _ = desk.run("reproduce", bundle, "--json")
    found = {item["name"]: item["differs"] for item in json.loads(out)["members"]}
    assert (code, found["runtime/tool/data"]) == (1, ["size", "content"])
