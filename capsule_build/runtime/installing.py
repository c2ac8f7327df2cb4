"""From a tag to an installed capsule, and back.

`install` asks for nothing twice: it looks into the environment once, settles everything that needs no bundle
before one is downloaded, and only then takes the environment's lock and puts the bundle in its place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Final

from .errors import InputError, TargetError, UsageError
from .layout import CAPSULES, SETUPS, Mark, is_left_behind, new_token
from .locks import lock
from .placing import check_manifest, placer, stage_bundle
from .probing import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from .environment import Environment
    from .manifest import Manifest
    from .registry import Capsule, Registry, Resolved
    from .store import SignatureCheck, Store
    from .target import Present, Target

_ATTEMPTS: Final = 5
_ISIZE_BYTES: Final = 4
_ALLOWANCE_BYTES: Final = 16 << 20
"""Room beyond a bundle's own bytes: folders, and files' last blocks."""


@dataclass(frozen=True)
class Installed:
    """A capsule in an environment.

    Attributes:
        tag: What was asked for.
        platform: Which of its variants it is, as `linux-x86_64-glibc`.
        root: The install root.
        sha256: The bundle's digest.
        launcher: The absolute path of the set-up launcher.
        tools: Each tool's absolute path.
        setup_root: Where packages that are installed with it go; it isn't made here.
        is_new: Whether this call installed it.
        notes: What a person should know.
    """

    tag: str
    platform: str
    root: str
    sha256: str
    launcher: str
    tools: Mapping[str, str]
    setup_root: str
    is_new: bool
    notes: tuple[str, ...] = ()


def install(
    tag: str,
    environment: Environment,
    *,
    registry: Registry,
    store: Store,
    needs: Iterable[str] = (),
    replace: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
    check_signature: SignatureCheck | None = None,
) -> Installed:
    """Install a capsule, or find that it is there.

    Args:
        tag: The capsule's tag, such as `node24-v1`; nothing else is taken.
        environment: Where to.
        registry: Which bundle a tag stands for.
        store: Where bundles are kept.
        needs: Tools that the capsule must have.
        replace: Whether another digest, in the store or at the install root, is replaced by the lock's.
        progress: Is told what is done (`download`, `install`), and the bytes done and in all.
        check_signature: Is given the bundle and its signature before the bundle is used.

    Raises:
        UsageError: There is no such tag, or it lacks a tool.
        InputError: The bundle can't be had, or isn't the registry lock's.
        ContractError: The bundle breaks its contract, or isn't what the registry lock says.
        TargetError: The environment can't take it.
    """
    _check_needs(tag, registry.capsule(tag), needs)
    target = probe(environment)
    resolved = resolve(registry, tag, target)
    present = _settle(target, resolved, replace=replace)
    if present is not None:
        return _finished(environment, target, resolved, present)
    target.check()
    target.check_room(resolved.variant.size + _ALLOWANCE_BYTES)
    bundle = store.get(
        resolved, replace=replace, progress=_named(progress, "download"), check_signature=check_signature
    )
    target.check_room(_unpacked_size(bundle) + _ALLOWANCE_BYTES)
    with lock(environment.identity):
        for _ in range(_ATTEMPTS):
            target = probe(environment)
            present = _settle(target, resolved, replace=replace)
            if present is not None:
                return _finished(environment, target, resolved, present)
            target.check()
            manifest = _put(environment, target, resolved, bundle, _named(progress, "install"))
            if manifest is not None:
                return _described(target, resolved, manifest, is_new=True)
    raise TargetError(
        f"{environment.name}: other processes keep changing '{resolved.variant.install_root}'.",
        hint="Try again when they have ended.",
    )


def installed(tag: str, environment: Environment, *, registry: Registry) -> Installed | None:
    """Return the capsule that a tag stands for, if it is installed; nothing is changed or downloaded.

    Raises:
        UsageError: There is no such tag, or not for the environment's platform.
        TargetError: The environment can't be looked into, or holds another capsule.
    """
    registry.capsule(tag)
    target = probe(environment)
    resolved = resolve(registry, tag, target)
    present = _settle(target, resolved, replace=False)
    return None if present is None else _described(target, resolved, present.manifest, is_new=False)


def not_installed(tag: str, environment: Environment) -> TargetError:
    """Return the error for a capsule that should be there."""
    return TargetError(
        f"{environment.name}: the capsule '{tag}' isn't installed there.",
        hint=f"capsule install {tag} {environment.name}\n"
        "One that was only unpacked, as by tar, doesn't count: what 'install' puts there is marked as whole.",
    )


def resolve(registry: Registry, tag: str, target: Target) -> Resolved:
    """Return the bundle that a tag stands for in an environment that was looked into.

    Where the image's own programs need no C library, either variant is right: glibc's is taken, or else the
    one that there is.

    Raises:
        UsageError: There is no such tag, or not for this platform.
        RevokedError: The bundle has been revoked.
        TargetError: No capsule runs there.
    """
    platform = target.platform
    if target.libc is None and platform not in registry.capsule(tag).variants:
        other = changed(platform, libc="musl")
        if other in registry.capsule(tag).variants:
            platform = other
    return registry.resolve(tag, platform)


def uninstall(tag: str, environment: Environment, *, registry: Registry, setups: bool = False) -> bool:
    """Remove a tag's capsule, whatever its digest is; False: it isn't there.

    The two folders of capsules and setup roots go too, when nothing else is in them.

    Args:
        tag: The capsule's tag.
        environment: Where from.
        registry: Which install roots a tag has.
        setups: Whether to remove the setup roots that need it, too; without, they are in the way.

    Raises:
        UsageError: There is no such tag.
        TargetError: It can't be removed.
    """
    names = {variant.install_root.rpartition("/")[2] for variant in registry.capsule(tag).variants.values()}
    with lock(environment.identity):
        target = probe(environment)
        target.check_folders()
        found = [present for name, present in target.capsules.installed.items() if name in names]
        paths: list[str] = []
        for present in found:
            mark = present.mark
            if mark.digest in target.capsules.setups:
                if not setups:
                    raise TargetError(
                        f"{environment.name}: '{SETUPS}/{mark.digest}' needs the capsule.",
                        hint="Remove that setup root first, or both with --setups (in Python: setups=True).",
                    )
                paths.append(f"{SETUPS}/{mark.digest}")
            paths += [f"{CAPSULES}/{mark.name}", f"{CAPSULES}/{mark}"]
        paths += [f"{CAPSULES}/{entry}" for entry in _left_behind(target)]
        place = placer(environment, target)
        if paths:
            place.remove(new_token(), paths)
        # Only one's own: another user's installer, whom this lock doesn't hold, may be about to fill it.
        emptied = [
            folder.path
            for folder in target.capsules.folders
            if folder.path in (CAPSULES, SETUPS) and folder.owner == target.user
        ]
        if emptied:
            place.tidy(emptied)
    return bool(found)


def _check_needs(tag: str, capsule: Capsule, needs: Iterable[str]) -> None:
    missing = sorted(set(needs) - set(capsule.tools))
    if missing:
        raise UsageError(
            f"The capsule '{tag}' has no {', '.join(missing)}.",
            hint=f"Its tools are: {', '.join(sorted(capsule.tools))}.",
        )


def _settle(target: Target, resolved: Resolved, *, replace: bool) -> Present | None:
    """Return the capsule if it is installed; raise if another one is in its way."""
    target.check_folders()
    name = resolved.variant.install_root.rpartition("/")[2]
    for other in sorted(target.capsules.installed):
        if other != name:
            raise TargetError(
                f"{target.name}: the capsule '{other}' is installed there, and there can be only one.",
                hint=f"Uninstall it, or use it in place of '{name}'.",
            )
    present = target.capsules.installed.get(name)
    if present is None:
        return None
    digest = present.mark.digest
    if digest == resolved.variant.sha256:
        check_manifest(present.manifest, resolved)
        return present
    if not replace:
        raise TargetError(
            f"{target.name}: '{resolved.variant.install_root}' holds the bundle {digest}, and not "
            f"{resolved.variant.sha256}, which the registry lock says.",
            hint="Uninstall it, or have it replaced with --replace (in Python: replace=True).",
        )
    if digest in target.capsules.setups:
        raise TargetError(
            f"{target.name}: the bundle {digest} at '{resolved.variant.install_root}' can't be replaced: "
            f"'{SETUPS}/{digest}' is sealed against it.",
            hint="Remove that setup root first.",
        )
    return None


def _put(
    environment: Environment,
    target: Target,
    resolved: Resolved,
    bundle: Path,
    progress: Callable[[int, int], None] | None,
) -> Manifest | None:
    """Stage a bundle and give it its name; `None`: somebody else took the name meanwhile."""
    place = placer(environment, target)
    token = new_token()
    name = resolved.variant.install_root.rpartition("/")[2]
    present = target.capsules.installed.get(name)
    left_behind = _left_behind(target)
    if present is None and name in target.capsules.entries:
        # No mark says that it is finished, and marks come first: it is nobody's work in progress.
        left_behind.append(name)
    manifest = stage_bundle(place, bundle, resolved, token, left_behind, progress)
    mark = Mark(name, resolved.variant.sha256, token)
    return manifest if place.commit(mark, present.mark if present is not None else None) else None


def _left_behind(target: Target) -> list[str]:
    """Return the entries that dead installers left."""
    marks = {str(present.mark) for present in target.capsules.installed.values()}
    return [entry for entry in target.capsules.entries if entry not in marks and is_left_behind(entry)]


def _finished(environment: Environment, target: Target, resolved: Resolved, present: Present) -> Installed:
    if not present.is_finished:
        placer(environment, target).finish(resolved.variant.install_root)
    return _described(target, resolved, present.manifest, is_new=False)


def _described(target: Target, resolved: Resolved, manifest: Manifest, *, is_new: bool) -> Installed:
    root = manifest.install_root
    return Installed(
        tag=resolved.tag,
        platform=str(resolved.platform),
        root=root,
        sha256=resolved.variant.sha256,
        launcher=f"{root}/{manifest.launcher}",
        tools={name: f"{root}/{path}" for name, path in sorted(manifest.tools.items())},
        setup_root=f"{SETUPS}/{resolved.variant.sha256}",
        is_new=is_new,
        notes=target.notes,
    )


def _unpacked_size(bundle: Path) -> int:
    """Return the size of a bundle's tar as gzip's last bytes claim it: only the check of room goes by it."""
    try:
        with bundle.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _ISIZE_BYTES))
            return int.from_bytes(stream.read(_ISIZE_BYTES), "little")
    except OSError as error:
        raise InputError(f"The bundle '{bundle}' can't be read: {error.strerror}.") from error


def _named(progress: Callable[[str, int, int], None] | None, what: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(what, done, total)
