"""A small world with all that a release takes.

`crew` is a fixture: a test module imports it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from capsule_build.cli.definitions import load_definitions
from capsule_build.recipes import load_recipes
from capsule_build.release.releasing import (
    LockRequest,
    Release,
    check_request,
    complete,
    sign_and_lock,
    survey,
)
from capsule_build.release.selection import parse_scoped, plan_release, select
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import open_signer
from tests import archives, fakes
from tests.releases import without_schema, write_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from capsule_build.build import Reporter, Workshop
    from capsule_build.plan import BuildPlan
    from capsule_build.release.releasing import Item
    from capsule_build.release.signer import Signer

BUNDLES = [f"tiny-v1-linux-x86_64-{libc}.tar.gz" for libc in ("glibc", "musl")]


@dataclass
class Crew:
    """A small world with all that a release takes, and what happened in it."""

    world: fakes.World
    key: Path
    public_key: Path
    opened: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    @property
    def lock(self) -> Path:
        return self.world.folder / "registry.lock.json"

    @contextlib.contextmanager
    def workshop(self) -> Iterator[Workshop]:
        self.opened.append("workshop")
        yield self.world.shop

    @contextlib.contextmanager
    def signer(self) -> Iterator[Signer]:
        self.opened.append("signer")
        with open_signer(SigningOptions(key=self.key), say=self.opened.append) as signer:
            yield signer

    @contextlib.contextmanager
    def building(self, item: Item) -> Iterator[Reporter]:
        yield self.world.report
        self.built.append(item.plan.output.name)

    def signed(self, bundle: Path) -> None:
        self.made.append(bundle.name)

    def plans(
        self, *names: str, sources: tuple[str, ...] = (), versions: tuple[str, ...] = ()
    ) -> list[BuildPlan]:
        return plan_release(
            select(load_recipes(self.world.recipes), names or ("tiny",), everything=False),
            load_definitions(self.world.recipes).pins,
            dist=self.world.dist,
            sources=parse_scoped("--source", sources),
            versions=parse_scoped("--runtime-version", versions),
        )

    def survey(self, plans: list[BuildPlan] | None = None) -> tuple[Item, ...]:
        return survey(plans or self.plans(), self.world.shop.templates)

    def release(
        self,
        plans: list[BuildPlan] | None = None,
        *,
        signer: Callable[[], contextlib.AbstractContextManager[Signer]] | None = None,
        **request: object,
    ) -> Release:
        asked = LockRequest(self.lock, **request)  # type: ignore[arg-type]  # as its fields are
        check_request(plans or self.plans(), asked)
        items = self.survey(plans)
        complete(items, self.workshop, self)
        return sign_and_lock(items, asked, signer or self.signer, self)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.world.dist.iterdir())


@pytest.fixture
def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crew:
    fakes.detach(monkeypatch)
    monkeypatch.setattr("capsule_build.release.selection.host_architecture", lambda: "x86_64")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "pack.py").write_text("# decides the bytes\n")
    monkeypatch.setattr("capsule_build.record.package_dir", lambda: tmp_path / "code")
    without_schema(monkeypatch)
    return Crew(fakes.World(tmp_path), *write_keys(tmp_path))


def own_tool(folder: Path, version: str = "1.4.0") -> Path:
    path = folder / "own.tar"
    path.write_bytes(archives.tar_bytes({"tool/VERSION": version.encode(), "tool/bin/tool": b"x"}))
    return path
