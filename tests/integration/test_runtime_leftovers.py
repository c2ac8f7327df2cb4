"""What installers that were killed leave, names that others have taken, and targets in trouble."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capsule_build.runtime import CapsuleError, Registry, TargetError, installed, verify
from capsule_build.runtime.layout import Mark, is_left_behind, new_token
from capsule_build.runtime.placing import placer, stage_bundle
from capsule_build.runtime.probing import probe
from tests.integration.installs import NAME, Ground, ground, tmp_path
from tests.targets import CAPSULES, SETUPS, TAG, listing

__all__ = ["ground", "tmp_path"]

# What dead installers leave


def dead_token() -> str:
    """A token of a process that has ended."""
    child = os.fork()
    if not child:
        os._exit(0)
    token = new_token()
    parts = token.rsplit("-", 4)
    os.waitpid(child, 0)
    return "-".join([parts[0], f"{child:x}", *parts[2:]])


def test_what_dead_installers_left_is_removed(ground: Ground) -> None:
    token = dead_token()
    folder = ground.root / CAPSULES
    folder.mkdir(mode=0o755)
    (folder / f".staging-{token}" / NAME / "deep").mkdir(parents=True)
    (folder / f".staging-{token}" / NAME / "deep").chmod(0o555)
    (folder / f".trash-{token}" / "x").mkdir(parents=True)
    mark = Mark(NAME, "0" * 64, token)
    (folder / str(mark)).write_text("{}")
    assert ground.install().is_new
    assert len(listing(ground.root)) == 2


def test_what_a_living_installer_works_on_is_left_alone(ground: Ground) -> None:
    token = new_token()
    (ground.root / CAPSULES).mkdir(mode=0o755)
    (ground.root / CAPSULES / f".staging-{token}").mkdir()
    ground.install()
    assert f".staging-{token}" in listing(ground.root)


def test_another_machine_s_work_counts_as_left_behind_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = new_token().split("-")
    foreign = f".staging-{'-'.join(['ffffffff', *parts[1:]])}"
    assert not is_left_behind(foreign)
    old = f".staging-{'-'.join(['ffffffff', *parts[1:4], f'{int(parts[4], 16) - 90_000:x}', parts[5]])}"
    assert is_left_behind(old)
    assert not is_left_behind("somebody's folder")


def test_a_tree_without_a_mark_is_no_install_and_is_replaced(ground: Ground) -> None:
    ground.install()
    (mark,) = (item for item in (ground.root / CAPSULES).iterdir() if item.name != NAME)
    mark.unlink()
    assert installed(TAG, ground.environment, registry=ground.registry) is None
    assert ground.install().is_new
    assert len(listing(ground.root)) == 2


def test_a_mark_that_is_only_a_copy_of_the_manifest_is_no_mark(ground: Ground) -> None:
    ground.install()
    (mark,) = (item for item in (ground.root / CAPSULES).iterdir() if item.name != NAME)
    data = mark.read_bytes()
    mark.unlink()
    mark.write_bytes(data)
    assert installed(TAG, ground.environment, registry=ground.registry) is None


def test_an_installer_killed_before_its_last_step_is_finished_by_the_next(ground: Ground) -> None:
    ground.install()
    ground.place.chmod(0o755)
    assert not ground.install().is_new
    assert stat.S_IMODE(ground.place.stat().st_mode) == 0o555


def test_the_loser_of_a_race_takes_the_winner_s_install(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, as two machines would be: both stage, one gets the name."""
    real: Any = stage_bundle
    races: list[int] = []

    def stage(*arguments: Any) -> Any:
        if not races:
            races.append(1)
            target = probe(ground.environment)
            token = new_token()
            place = placer(ground.environment, target)
            real(place, *arguments[1:3], token, *arguments[4:])
            digest = arguments[2].variant.sha256
            assert place.commit(Mark(NAME, digest, token), None)
        return real(*arguments)

    monkeypatch.setattr("capsule_build.runtime.installing.stage_bundle", stage)
    result = ground.install()
    assert not result.is_new
    assert len(listing(ground.root)) == 2
    verify(TAG, ground.environment, registry=ground.registry, store=ground.store)


# Squatting


@pytest.mark.parametrize("folder", [CAPSULES, SETUPS])
@pytest.mark.parametrize("kind", ["symlink", "file", "writable by the group", "writable by all"])
def test_predictable_names_that_others_made_are_refused(ground: Ground, folder: str, kind: str) -> None:
    path = ground.root / folder
    if kind == "symlink":
        (ground.root / "elsewhere").mkdir()
        path.symlink_to(ground.root / "elsewhere")
    elif kind == "file":
        path.write_text("")
    else:
        path.mkdir()
        path.chmod(0o775 if kind == "writable by the group" else 0o777)
    with pytest.raises(TargetError, match="isn't trusted"):
        ground.install()
    assert kind != "symlink" or list((ground.root / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
@pytest.mark.parametrize("folder", [CAPSULES, SETUPS])
def test_another_user_s_folder_is_refused(ground: Ground, folder: str) -> None:
    path = ground.root / folder
    path.mkdir(mode=0o755)
    os.chown(path, 12345, 12345)
    with pytest.raises(TargetError, match="belongs to the user 12345"):
        ground.install()


def test_a_folder_that_is_squatted_between_the_look_and_the_work_is_refused(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = probe(ground.environment)
    (ground.root / "elsewhere").mkdir()
    (ground.root / CAPSULES).symlink_to(ground.root / "elsewhere")
    with pytest.raises(TargetError):
        placer(ground.environment, target).prepare(new_token(), [])
    assert list((ground.root / "elsewhere").iterdir()) == []


# Trouble in the target


def test_a_target_without_room_is_refused_before_the_download(ground: Ground) -> None:
    capsule = ground.registry.capsules[TAG]
    huge = {key: replace(one, size=1 << 60) for key, one in capsule.variants.items()}
    ground.registry = Registry({TAG: replace(capsule, variants=huge)})
    ground.bundle.unlink()
    with pytest.raises(TargetError, match="/tmp has room for"):
        ground.install()


def test_a_disk_that_fills_up_is_said_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path, "local")
    real = os.write

    def write(handle: int, data: Any) -> int:
        if str(Path(f"/proc/self/fd/{handle}").readlink()).endswith("share/text"):
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(TargetError, match="No space left on device"):
        ground.install()
    assert listing(ground.root) == []


def test_every_error_here_is_for_people(ground: Ground) -> None:
    """No traceback reaches a user: whatever goes wrong is a `CapsuleError`."""
    (ground.root / "tmp").chmod(0o1777)
    (ground.root / CAPSULES).mkdir(mode=0o755)
    (ground.root / CAPSULES / NAME).write_text("a file in the way")
    with pytest.raises(CapsuleError):
        ground.install(needs=("x",))
    assert ground.install().is_new
