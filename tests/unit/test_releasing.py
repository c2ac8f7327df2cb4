"""A release builds what is missing, and then signs and locks all of it, or nothing."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from capsule_build.engine.protocol import BuildError
from capsule_build.lock import check_lock
from capsule_build.release.outputs import Outputs
from capsule_build.release.policy import KeyPolicy
from capsule_build.release.provenance import read_provenance
from capsule_build.release.releasing import LockRequest, check_request, require_finished
from capsule_build.release.verification import verify_release
from capsule_build.runtime.errors import CapsuleError, SignatureError, UsageError
from capsule_build.runtime.registry import load_registry
from tests import tiny_recipe
from tests.crew import BUNDLES, Crew, crew, own_tool
from tests.nobody import as_nobody

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule_build.plan import BuildPlan
    from capsule_build.release.signer import Signer

pytestmark = pytest.mark.slow

__all__ = ["crew"]


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
