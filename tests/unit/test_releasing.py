"""A release builds what is missing, and then signs and locks all of it, or nothing."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.cli.definitions import load_definitions
from capsule_build.engine.protocol import BuildError
from capsule_build.lock import check_lock
from capsule_build.recipes import load_recipes
from capsule_build.release.finished import why_unfinished
from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.provenance import make_provenance, read_provenance
from capsule_build.release.releasing import (
    LockRequest,
    Release,
    check_request,
    complete,
    require_finished,
    sign_and_lock,
    survey,
)
from capsule_build.release.selection import parse_scoped, plan_release, select
from capsule_build.release.signer import SigningOptions
from capsule_build.release.signing import open_signer
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, SignatureError, UsageError
from capsule_build.runtime.registry import load_registry
from tests import archives, fakes, tiny_recipe
from tests.nobody import as_nobody
from tests.releases import without_schema, write_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from capsule_build.build import Reporter, Workshop
    from capsule_build.pins import PinSet
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


def everything(*bundles: str) -> list[str]:
    return sorted(
        path.name for name in bundles for path in (*Outputs(Path(name)).released, Outputs(Path(name)).record)
    )


def test_a_release_is_built_signed_and_locked(crew: Crew) -> None:
    released = crew.release(base_urls=["https://example.org/x"])
    assert crew.built == crew.made == BUNDLES
    assert [item.why for item in released.items] == ["isn't there", "isn't there"]
    assert crew.names() == everything(*BUNDLES)
    for name in BUNDLES:
        verified = verify_release(crew.world.dist / name, KeyPolicy(crew.public_key))
        assert verified.signer == released.signer
    check_lock(crew.lock, crew.world.dist, base_urls=["https://example.org/x"])
    libcs = [str(change.platform).rpartition("-")[2] for change in released.changes]
    assert libcs == ["glibc", "musl"]


def test_the_same_release_again_builds_nothing(crew: Crew) -> None:
    crew.release()
    data = crew.lock.read_bytes()
    crew.opened.clear()
    released = crew.release()
    assert crew.opened == ["signer"]
    assert [item.why for item in released.items] == [None, None]
    assert released.changes == ()
    assert crew.lock.read_bytes() == data


def test_a_release_goes_on_from_what_is_finished(crew: Crew) -> None:
    crew.release(crew.plans("tiny:glibc"))
    before = {name: (crew.world.dist / name).stat().st_ino for name in everything(BUNDLES[0])}
    crew.world.engine.failures["build"] = BuildError("Step 2 failed.", step="2/2", log_tail=(), kept=())
    with pytest.raises(CapsuleError, match="1 of 2 bundles couldn't be built, so nothing") as raised:
        crew.release()
    assert f"{BUNDLES[1]}: Step 2 failed." in raised.value.message
    assert before == {name: (crew.world.dist / name).stat().st_ino for name in crew.names()}
    crew.world.engine.failures.clear()
    crew.release()
    assert crew.built == BUNDLES
    assert crew.names() == everything(*BUNDLES)


def test_a_build_that_fails_does_not_keep_the_others_from_being_built(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = crew.world.engine.build

    def failing(context: Path, **options: object) -> str:
        if "glibc" in str(options["tag"]):
            raise BuildError("Step 2 failed.", step="2/2", log_tail=(), kept=())
        return build(context, **options)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(crew.world.engine, "build", failing)
    with pytest.raises(CapsuleError, match="1 of 2 bundles"):
        crew.release()
    assert crew.built == BUNDLES[1:]
    assert "signer" not in crew.opened
    assert not crew.lock.exists()


def test_one_bundle_that_can_not_be_built_is_its_own_error(crew: Crew) -> None:
    error = BuildError("Step 2 failed.", step="2/2", log_tail=(), kept=())
    crew.world.engine.failures["build"] = error
    with pytest.raises(BuildError) as raised:
        crew.release(crew.plans("tiny:musl"))
    assert raised.value is error


class Tired:
    """Signs until it may not any more, as with a token that expires in the middle."""

    identity = "somebody"

    def __init__(self, signer: Signer, times: int) -> None:
        self._signer = signer
        self._left = times

    def _once(self) -> Signer:
        if not self._left:
            raise SignatureError("The identity token has expired.")
        self._left -= 1
        return self._signer

    def sign_artifact(self, path: Path) -> bytes:
        return self._once().sign_artifact(path)

    def sign_statement(self, data: bytes) -> bytes:
        return self._once().sign_statement(data)


@pytest.mark.parametrize("times", range(6))
def test_a_signature_that_fails_leaves_no_half_release(crew: Crew, times: int) -> None:
    @contextlib.contextmanager
    def tired() -> Iterator[Signer]:
        with crew.signer() as signer:
            yield Tired(signer, times)

    with pytest.raises(SignatureError, match="has expired") as raised:
        crew.release(signer=tired)
    assert raised.value.__notes__ == [
        "No signature was written, and the lock is what it was. The same command goes on from here."
    ]
    assert not crew.lock.exists()
    assert not [name for name in crew.names() if "sigstore" in name]
    crew.opened.clear()
    crew.release()
    assert crew.opened == ["signer"]
    assert crew.names() == everything(*BUNDLES)


def test_a_lock_that_can_not_be_written_takes_the_signatures_back(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if target.name == crew.lock.name:
            raise PermissionError(13, "Permission denied", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(PermissionError):
        crew.release()
    assert not [name for name in crew.names() if "sigstore" in name]
    assert not crew.lock.exists()
    # Nobody is told of signatures that aren't there.
    assert crew.made == []


def test_what_the_lock_refuses_is_not_signed(crew: Crew) -> None:
    crew.release()
    crew.world.engine.files["share/licenses/tool/LICENSE"] += b"More.\n"
    (crew.world.recipes / "templates" / "scripts" / "step.sh").write_text("set -e\n")
    crew.opened.clear()
    with pytest.raises(CapsuleError, match="would change under an unchanged tag"):
        crew.release()
    assert crew.opened == ["workshop"]
    crew.release(replace_digests=True)
    check_lock(crew.lock, crew.world.dist)


def test_a_lock_that_can_not_be_is_known_before_any_work(crew: Crew) -> None:
    crew.lock.mkdir()
    with pytest.raises(UsageError, match="is not a file"):
        crew.release()
    assert crew.opened == []


def test_what_can_not_be_written_is_known_before_any_work(crew: Crew) -> None:
    def refused(plans: list[BuildPlan], lock: Path) -> str:
        with pytest.raises(UsageError) as caught:
            check_request(plans, LockRequest(lock))
        return caught.value.message

    with tempfile.TemporaryDirectory() as made:
        # Not below pytest's own folder, which is its user's alone.
        folder, closed = Path(made), Path(made, "closed")
        folder.chmod(0o777)
        closed.mkdir(0o555)
        said = as_nobody(lambda: refused([], closed / "x.json"))
        assert said.startswith(f"The folder of {closed / 'x.json'} can't be written to")
        plans = [replace(plan, output=closed / plan.output.name) for plan in crew.plans()]
        said = as_nobody(lambda: refused(plans, folder / "x.json"))
        assert said.startswith(f"The folder {closed} can't be written to")


def own_tool(folder: Path, version: str = "1.4.0") -> Path:
    path = folder / "own.tar"
    path.write_bytes(archives.tar_bytes({"tool/VERSION": version.encode(), "tool/bin/tool": b"x"}))
    return path


def test_what_is_not_made_of_pins_goes_into_a_lock_for_tests_only(crew: Crew) -> None:
    own = own_tool(crew.world.folder)
    crew.world.engine.answers["tool"] = (f"tool 1.4.0 with inner {tiny_recipe.INNER_VERSION}", 0)
    plans = crew.plans("tiny:glibc", sources=(f"tool={own}",), versions=("tiny:tool=1.4.0",))
    with pytest.raises(UsageError, match=r"isn't made of its pins \(tool\)") as raised:
        crew.release(plans)
    assert "--allow-overrides" in str(raised.value.hint)
    assert crew.opened == []
    crew.release(plans, allow_overrides=True)
    (variant,) = load_registry(crew.lock).capsules["tiny-v1"].variants.values()
    assert variant.filename == "tiny-1.4.0-linux-x86_64-glibc.tar.gz"
    provenance = read_provenance(Outputs(plans[0].output).provenance.read_bytes())
    assert provenance.overrides == ("tool",)
    assert crew.survey(plans)[0].why is None
    own.write_bytes(own.read_bytes() + bytes(512))
    assert crew.survey(plans)[0].why == "was made of another tool"


def test_prebuilt_means_that_nothing_is_built(crew: Crew) -> None:
    crew.release(crew.plans("tiny:glibc"))
    with pytest.raises(CapsuleError, match=f"{BUNDLES[1]} isn't there") as raised:
        require_finished(crew.survey())
    assert BUNDLES[0] not in raised.value.message
    require_finished(crew.survey(crew.plans("tiny:glibc")))


def replaced(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


UNFINISHED: dict[str, tuple[Callable[[Crew, Outputs], object], str]] = {
    "no bundle": (lambda _, files: files.bundle.unlink(), "isn't there"),
    "no record": (lambda _, files: files.record.unlink(), "lacks .*build.json"),
    "no provenance": (lambda _, files: files.provenance.unlink(), "lacks .*provenance.json"),
    "no SBOM": (lambda _, files: files.sbom.unlink(), "lacks .*cdx.json"),
    "no digest": (lambda _, files: files.digest.unlink(), "lacks .*sha256"),
    "a byte more": (
        lambda _, files: files.bundle.write_bytes(files.bundle.read_bytes() + b"x"),
        "isn't whole",
    ),
    "half a record": (lambda _, files: files.record.write_text("{"), "isn't whole"),
    "an old record": (lambda _, files: replaced(files.record, "record.v2", "record.v1"), "another version"),
    "another provenance": (lambda _, files: replaced(files.provenance, "fake", "made"), "a provenance that"),
    "another SBOM": (lambda _, files: replaced(files.sbom, "inner", "outer"), "another SBOM"),
    "another digest": (lambda _, files: replaced(files.digest, "  tiny", "  huge"), "another digest"),
    "another size": (
        lambda _, files: replaced(files.record, '"size": ', '"size": 1'),
        "was made of another|describes",
    ),
    "the recipe": (
        lambda crew, _: replaced(crew.world.recipes / "tiny.toml", "A tiny tool", "A small tool"),
        "another definition: recipe",
    ),
    "the components": (
        lambda crew, _: replaced(crew.world.recipes / "components.toml", 'title = "tool"', 'title = "x"'),
        "another definition: components",
    ),
    "the templates": (
        lambda crew, _: replaced(crew.world.recipes / "templates/scripts/step.sh", "set -eu", "set -e"),
        "another definition: templates",
    ),
    "the code": (
        lambda crew, _: replaced(crew.world.folder / "code/pack.py", "decides", "decided"),
        "another definition: code",
    ),
    "the compressor": (lambda _, files: replaced(files.record, '"zlib_ng": "', '"zlib_ng": "0.'), "zlib-ng"),
}


@pytest.mark.parametrize("case", UNFINISHED)
def test_finished_is_told_by_what_a_bundle_is(crew: Crew, case: str) -> None:
    (plan,) = crew.plans("tiny:glibc")
    crew.release([plan])
    assert why_unfinished(plan, crew.world.shop.templates) is None
    change, why = UNFINISHED[case]
    change(crew, Outputs(plan.output))
    found = why_unfinished(plan, crew.world.shop.templates)
    assert found is not None
    assert re.search(why, found), found


def moved_pins(crew: Crew, component: str) -> PinSet:
    """The pins with another digest for a component."""
    pins = load_definitions(crew.world.recipes).pins
    return pins.replace(replace(pin, sha256="0" * 64) for pin in pins.pins if pin.component == component)


@pytest.mark.parametrize("component", ["tool", "helper", "musl-dev", "texts", "busybox-static"])
def test_a_pin_that_moved_is_another_bundle(crew: Crew, component: str) -> None:
    crew.release(crew.plans("tiny:glibc"))
    selected = select(load_recipes(crew.world.recipes), ["tiny:glibc"], everything=False)
    (plan,) = plan_release(selected, moved_pins(crew, component), dist=crew.world.dist)
    assert why_unfinished(plan, crew.world.shop.templates) == f"was made of another {component}"


def test_what_took_a_vanished_pins_place_counts_where_it_may(crew: Crew) -> None:
    (plan,) = crew.plans("tiny:glibc")
    crew.release([plan])
    outputs = Outputs(plan.output)
    record = json.loads(outputs.record.read_bytes())
    (helper,) = [item for item in record["inputs"] if item["name"] == "helper" and item["role"] == "shipped"]
    helper.update(origin="newer", sha256="0" * 64)
    record["overrides"] = ["helper"]
    outputs.record.write_text(json.dumps(record))
    outputs.provenance.write_bytes(make_provenance(outputs.record.read_bytes()))
    templates = crew.world.shop.templates
    assert why_unfinished(plan, templates) == "was made of another helper"
    assert why_unfinished(plan, templates, newer=True) is None


def chosen(crew: Crew, *names: str, everything: bool = False, libcs: tuple[str, ...] = ()) -> list[str]:
    recipes = load_recipes(crew.world.recipes)
    return [
        f"{each.recipe.id}:{each.libc}" for each in select(recipes, names, everything=everything, libcs=libcs)
    ]


def test_capsules_are_named_by_recipe_and_libc(crew: Crew) -> None:
    assert chosen(crew, everything=True) == chosen(crew, "tiny") == ["tiny:glibc", "tiny:musl"]
    assert chosen(crew, "tiny:musl", "tiny") == ["tiny:musl", "tiny:glibc"]
    assert chosen(crew, "tiny", libcs=("musl",)) == ["tiny:musl"]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ((), {}, "Which capsules"),
        (("tiny",), {"everything": True}, "--all and names"),
        (("teeny",), {}, "did you mean 'tiny'"),
        (("tiny:uclibc",), {}, "'uclibc' is not a C library"),
        (("tiny:musl",), {"libcs": ("glibc",)}, "--libc glibc: none"),
    ],
)
def test_what_names_no_capsule(
    crew: Crew, names: tuple[str, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        chosen(crew, *names, **options)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (("tool",), "not of the form"),
        (("=x",), "not of the form"),
        (("tiny:=x",), "not of the form"),
        (("tool=/no/such/file",), "there is no such file"),
        (("huge:tool={own}",), "none of the capsules has that input"),
        (("pipe={own}",), "none of the capsules has that input"),
        (("tool={own}", "tiny:tool={own}"), "are about the same input of tiny"),
    ],
)
def test_what_is_no_source_of_a_release(crew: Crew, sources: tuple[str, ...], message: str) -> None:
    own = own_tool(crew.world.folder)
    with pytest.raises(UsageError, match=message):
        crew.plans(sources=tuple(text.format(own=own) for text in sources))


def test_a_source_is_for_the_capsules_that_it_names(crew: Crew) -> None:
    own = own_tool(crew.world.folder, tiny_recipe.TOOL_VERSION)
    for scope, overridden in (("", [True, True]), ("tiny:", [True, True]), ("tiny:musl:", [False, True])):
        plans = crew.plans(sources=(f"{scope}tool={own}",))
        assert [bool(plan.overrides) for plan in plans] == overridden
