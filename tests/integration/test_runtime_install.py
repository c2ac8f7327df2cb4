"""Installing on this machine and through a shell alone, into a folder that stands for /tmp."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from capsule_build.runtime import (
    BundleError,
    ContractError,
    DifferenceError,
    DigestError,
    Registry,
    TargetError,
    UsageError,
    install,
    installed,
    uninstall,
    verify,
)
from capsule_build.runtime.layout import Mark, new_token
from capsule_build.runtime.local_placing import LocalPlacer
from capsule_build.runtime.probing import probe
from tests.bad_bundles import CASES
from tests.integration.installs import LIBC, NAME, Ground, ground, tmp_path
from tests.targets import (
    CAPSULES,
    KINDS,
    SETUPS,
    TAG,
    Rerooted,
    document,
    listing,
    registry_of,
    small,
    stored,
)

if TYPE_CHECKING:
    from pathlib import Path

    from capsule_build.runtime import Store

__all__ = ["ground", "tmp_path"]


def test_a_tag_is_installed_found_again_verified_and_removed(ground: Ground) -> None:
    first = ground.install(needs=("node", "npm"))
    assert first.is_new
    assert first.root == f"/{CAPSULES}/{NAME}"
    assert first.tools["node"] == f"{first.root}/bin/node"
    assert first.launcher == f"{first.root}/bin/capsule-exec"
    assert first.setup_root == f"/{SETUPS}/{first.sha256}"
    assert first.sha256 == hashlib.sha256(ground.bundle.read_bytes()).hexdigest()

    again = ground.install()
    assert not again.is_new
    assert again.tools == first.tools
    assert installed(TAG, ground.environment, registry=ground.registry) == again
    assert verify(TAG, ground.environment, registry=ground.registry, store=ground.store) == again

    assert uninstall(TAG, ground.environment, registry=ground.registry)
    assert list((ground.root / "tmp").iterdir()) == []
    assert installed(TAG, ground.environment, registry=ground.registry) is None
    assert not uninstall(TAG, ground.environment, registry=ground.registry)


def test_an_install_that_is_there_needs_no_bundle(ground: Ground) -> None:
    ground.install()
    ground.bundle.unlink()
    assert not ground.install().is_new


def test_nothing_in_an_install_root_can_be_written_to(ground: Ground) -> None:
    ground.install()
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [ground.place, *ground.place.rglob("*")]}
    assert {mode for path, mode in modes.items() if not path.is_symlink()} == {0o444, 0o555}


def test_the_mark_lies_beside_the_root_and_is_its_manifest(ground: Ground) -> None:
    ground.install()
    (mark,) = (item for item in (ground.root / CAPSULES).iterdir() if item.name != NAME)
    assert mark.samefile(ground.place / "agentcompass-capsule.json")
    assert Mark.parse(mark.name) is not None
    assert not any(item.name.startswith(".") for item in ground.place.iterdir())


def test_progress_is_told(ground: Ground) -> None:
    told: list[tuple[str, int, int]] = []
    ground.install(progress=lambda *said: told.append(said))
    size = ground.bundle.stat().st_size
    assert told[-1] == ("install", size, size)


def test_another_digest_at_the_root_is_an_error_that_says_so(ground: Ground) -> None:
    ground.install()
    old = ground.supersede()
    with pytest.raises(TargetError, match=f"holds the bundle {old}") as caught:
        ground.install()
    assert "Uninstall it, or have it replaced with --replace" in str(caught.value)
    assert ground.text() == "one"


def test_another_digest_is_replaced_when_asked_for(ground: Ground) -> None:
    ground.install()
    ground.supersede()
    assert ground.install(replace=True).is_new
    assert ground.text() == "two"
    assert len(listing(ground.root)) == 2
    verify(TAG, ground.environment, registry=ground.registry, store=ground.store)


def test_replacing_is_refused_while_a_setup_root_is_sealed_against_the_old_one(ground: Ground) -> None:
    ground.install()
    old = ground.supersede()
    setup = ground.root / SETUPS / old
    setup.mkdir(parents=True)
    with pytest.raises(TargetError, match="is sealed against it"):
        ground.install(replace=True)
    assert ground.text() == "one"
    setup.rmdir()
    assert ground.install(replace=True).is_new


def test_a_second_capsule_is_refused(ground: Ground) -> None:
    ground.install()
    _, other = stored(ground.store.folder.parent, small(LIBC, "24.19.1").data(), "other.tar.gz")
    registry = registry_of(other, tag="node24-v2")
    with pytest.raises(TargetError, match=f"the capsule '{NAME}' is installed there"):
        install("node24-v2", ground.environment, registry=registry, store=ground.store)
    with pytest.raises(TargetError, match="there can be only one"):
        install("node24-v2", ground.environment, registry=registry, store=ground.store, replace=True)
    assert uninstall(TAG, ground.environment, registry=ground.registry)
    assert install("node24-v2", ground.environment, registry=registry, store=ground.store).is_new


def test_uninstall_is_refused_while_a_setup_root_needs_the_capsule(ground: Ground) -> None:
    setup = ground.root / SETUPS / ground.install().sha256
    (setup / "bin").mkdir(parents=True)
    with pytest.raises(TargetError, match="needs the capsule"):
        uninstall(TAG, ground.environment, registry=ground.registry)
    assert uninstall(TAG, ground.environment, registry=ground.registry, setups=True)
    # The image is as it was.
    assert list((ground.root / "tmp").iterdir()) == []


def test_uninstall_leaves_folders_that_hold_something_else(ground: Ground) -> None:
    ground.install()
    others = ground.root / SETUPS / "others"
    others.mkdir(parents=True)
    (ground.root / CAPSULES / "others").write_text("theirs")
    assert uninstall(TAG, ground.environment, registry=ground.registry)
    assert listing(ground.root) == ["others"]
    assert others.is_dir()


def test_a_setup_root_on_another_file_system_is_removed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("setups")

    class Split(Rerooted):
        """The folder of setup roots is a mount of its own."""

        def local_path(self, path: str) -> str:
            inner = path.removeprefix(f"/{SETUPS}")
            return super().local_path(path) if inner == path else f"{elsewhere}{inner}"

    (tmp_path / CAPSULES).mkdir(parents=True)
    (elsewhere / "one" / "bin").mkdir(parents=True)
    (elsewhere / "one").chmod(0o555)
    if tmp_path.stat().st_dev == elsewhere.stat().st_dev:
        pytest.skip("This machine has no second file system that can be written to.")
    LocalPlacer(Split(tmp_path), os.getuid()).remove(new_token(), [f"/{SETUPS}/one"])
    assert list(elsewhere.iterdir()) == []
    assert listing(tmp_path) == []


def test_a_superseded_capsule_can_be_uninstalled(ground: Ground) -> None:
    ground.install()
    ground.supersede()
    assert uninstall(TAG, ground.environment, registry=ground.registry)
    assert listing(ground.root) == []


# What the registry lock, the manifest and the probe say


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("runtime.version", "24.19.1", "runtime.version"),
        ("runtime.id", "node25", "runtime.id"),
        ("tools", ["node", "seal-tree"], "tools"),
    ],
)
def test_a_lock_that_disagrees_with_the_manifest_in_one_field(
    ground: Ground, path: str, value: Any, field: str
) -> None:
    capsule = ground.registry.capsules[TAG]
    variants = dict(capsule.variants)
    version, runtime = capsule.runtime_version, capsule.runtime_id
    tools = capsule.tools
    if path == "runtime.version":
        version = value
    elif path == "runtime.id":
        runtime = value
    else:
        tools = tuple(value)
    root = f"/{CAPSULES}/{runtime}-{version}-linux-{os.uname().machine}-{LIBC}"
    variants = {key: replace(one, install_root=root) for key, one in variants.items()}
    ground.registry = Registry(
        {TAG: replace(capsule, runtime_id=runtime, runtime_version=version, tools=tools, variants=variants)}
    )
    with pytest.raises(ContractError, match=f"its manifest's '{field}' is"):
        ground.install()
    assert listing(ground.root) == []


def test_a_bundle_of_another_platform_than_the_lock_says(ground: Ground, tmp_path: Path) -> None:
    other = "musl" if LIBC == "glibc" else "glibc"
    ground.bundle.write_bytes(small(other).data())
    of_other = registry_of(ground.bundle).capsules[TAG]
    (variant,) = of_other.variants.values()
    platform = probe(ground.environment).platform
    ground.registry = Registry(
        {TAG: replace(of_other, variants={platform: replace(variant, install_root=f"/{CAPSULES}/{NAME}")})}
    )
    with pytest.raises(ContractError, match="its manifest's 'platform' is"):
        ground.install()
    assert listing(ground.root) == []


def test_a_tag_without_a_variant_for_the_platform(ground: Ground) -> None:
    capsule = ground.registry.capsules[TAG]
    ground.registry = Registry({TAG: replace(capsule, variants={})})
    with pytest.raises(UsageError, match=f"no capsule '{TAG}' for linux-"):
        ground.install()


def test_a_tool_that_the_capsule_lacks_is_refused_before_anything_is_asked(ground: Ground) -> None:
    environment = Rerooted(ground.root)
    with pytest.raises(UsageError, match="has no pip"):
        install(TAG, environment, registry=ground.registry, store=ground.store, needs=("node", "pip"))
    assert environment.asked == 0


@pytest.mark.parametrize("tag", ["./node24.tar.gz", "https://a.b/c", "docker.io/x:y", "node24", "node24-v9"])
def test_only_a_tag_is_taken(ground: Ground, tag: str) -> None:
    environment = Rerooted(ground.root)
    with pytest.raises(UsageError):
        install(tag, environment, registry=ground.registry, store=ground.store)
    assert environment.asked == 0


# Bad bundles


def of_bad_bundle(ground: Ground, data: bytes) -> None:
    """Put a bad bundle into the store, its digest in the lock: whoever made that was tricked, too."""
    ground.bundle.write_bytes(data)
    capsule = ground.registry.capsules[TAG]
    (platform,) = capsule.variants
    digest = hashlib.sha256(data).hexdigest()
    variant = replace(capsule.variants[platform], sha256=digest, size=len(data))
    ground.registry = Registry({TAG: replace(capsule, variants={platform: variant})})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_bad_bundle_is_installed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(tmp_path, kind)
    target = probe(ground.environment)
    if kind == "local":
        # What is there doesn't change, and each look takes longer than all the rest.
        monkeypatch.setattr("capsule_build.runtime.installing.probe", lambda _: target)
    (ground.root / CAPSULES).mkdir(mode=0o755)
    for name, (rule, make) in list(CASES.items())[:: 1 if kind == "local" else 9]:
        of_bad_bundle(ground, make())
        before = set(tmp_path.rglob("*"))
        with pytest.raises(ContractError) as caught:
            ground.install()
        if isinstance(caught.value, BundleError):
            assert caught.value.rule is rule, name
        else:
            assert "its manifest's" in caught.value.message, name
        assert set(tmp_path.rglob("*")) == before, name


def test_a_bundle_that_changes_after_its_check_is_not_installed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = small(LIBC, text="evil").data()
    original = type(ground.store).get

    def get(self: Store, *arguments: Any, **options: Any) -> Path:
        path = original(self, *arguments, **options)
        path.write_bytes(other)
        return path

    monkeypatch.setattr(type(ground.store), "get", get)
    with pytest.raises(DigestError, match="has changed while it was read"):
        ground.install()
    assert listing(ground.root) == []


# Verifying


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("content", "share/text: has another content"),
        ("mode", "share/text: has the mode 0644, not 0444"),
        ("missing", "share/text: is missing"),
        ("added", "share/more: isn't in the bundle"),
        ("kind", "share/text: is a directory, not a regular file"),
        ("link", "share/text: is a symlink, not a regular file"),
        ("folder", ".: has the mode 0755, not 0555"),
    ],
)
def test_verify_names_what_differs(ground: Ground, change: str, said: str) -> None:
    ground.install()
    text = ground.place / "share/text"
    text.parent.chmod(0o755)
    if change == "content":
        text.chmod(0o644)
        text.write_text("two")
        text.chmod(0o444)
    elif change == "mode":
        text.chmod(0o644)
    elif change == "added":
        (text.parent / "more").write_text("")
    elif change == "folder":
        ground.place.chmod(0o755)
    else:
        text.unlink()
        if change == "kind":
            text.mkdir()
        elif change == "link":
            text.symlink_to("sbom.cdx.json")
    text.parent.chmod(0o555)
    with pytest.raises(DifferenceError) as caught:
        verify(TAG, ground.environment, registry=ground.registry, store=ground.store)
    assert f"\n  {said}\n" in str(caught.value)
    assert len(caught.value.differences) == 1
    assert caught.value.exit_code == 1


def test_verify_says_that_nothing_is_installed(ground: Ground) -> None:
    with pytest.raises(TargetError, match="isn't installed there") as caught:
        verify(TAG, ground.environment, registry=ground.registry, store=ground.store)
    assert f"capsule install {TAG} {ground.environment.name}\n" in str(caught.value.hint)


def test_the_manifest_used_here_is_this_machine_s() -> None:
    assert document(LIBC)["install_root"] == f"/{CAPSULES}/{NAME}"
