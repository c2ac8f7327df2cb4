"""`capsule probe`, `install`, `verify` and `uninstall`: capsules in environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...runtime.errors import CapsuleError, TargetError
from ...runtime.installing import install as install_capsule
from ...runtime.installing import uninstall as uninstall_capsule
from ...runtime.probing import probe as look_into
from ...runtime.verifying import DifferenceError
from ...runtime.verifying import verify as verify_capsule
from ..output import Json, human_size, out, print_error, print_json
from ..stages import stages
from .panels import CAPSULES
from .targets import (
    DataDir,
    LockOption,
    Replace,
    Tag,
    User,
    Where,
    check_named,
    open_registry,
    open_store,
    opened,
    print_notes,
)

if TYPE_CHECKING:
    from ...runtime.installing import Installed
    from ...runtime.target import Target

PROBE_SCHEMA: Final = "capsule.probe.v1"
INSTALL_SCHEMA: Final = "capsule.install.v1"
VERIFY_SCHEMA: Final = "capsule.verify.v1"
UNINSTALL_SCHEMA: Final = "capsule.uninstall.v1"

Setups = Annotated[
    bool,
    typer.Option("--setups", help="Remove the setup root that needs it, too, with what is installed there."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("probe", rich_help_panel=CAPSULES)(probe)
    app.command("install", rich_help_panel=CAPSULES)(install)
    app.command("verify", rich_help_panel=CAPSULES)(verify)
    app.command("uninstall", rich_help_panel=CAPSULES)(uninstall)


def probe(env: Where, *, user: User = None, as_json: Json = False) -> None:
    """Say what an environment is, and whether it can take a capsule. Exit code 7: it can't."""
    target = look_into(opened(env, user))
    problem: CapsuleError | None = None
    platform = None
    try:
        platform = str(target.platform)
        target.check()
    except TargetError as error:
        problem = error
    if as_json:
        print_json(_as_document(target, platform, problem))
    else:
        _print_target(target, platform)
        if problem is not None:
            print_error(problem)
    if problem is not None:
        raise typer.Exit(problem.exit_code)


def install(
    tag: Tag,
    env: Where,
    *,
    lock: LockOption = None,
    data_dir: DataDir = None,
    user: User = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Put a capsule into an environment, or find that it is there."""
    registry = open_registry(lock)
    check_named(tag, registry)
    environment = opened(env, user)
    with stages() as progress:
        done = install_capsule(
            tag,
            environment,
            registry=registry,
            store=open_store(data_dir),
            replace=replace,
            progress=progress,
        )
    if as_json:
        print_json({"schema_version": INSTALL_SCHEMA, **_described(done, env), "is_new": done.is_new})
        return
    print_notes(done.notes)
    out().print(f"{done.root}  {'installed' if done.is_new else 'was there already'}", markup=False)


def verify(
    tag: Tag,
    env: Where,
    *,
    lock: LockOption = None,
    data_dir: DataDir = None,
    user: User = None,
    as_json: Json = False,
) -> None:
    """Compare an installed capsule with its bundle, byte by byte. Exit code 1: it was changed."""
    registry = open_registry(lock)
    try:
        found = verify_capsule(tag, opened(env, user), registry=registry, store=open_store(data_dir))
    except DifferenceError as error:
        if not as_json:
            raise
        document = {"environment": env, "tag": tag, "ok": False, "differences": error.differences}
        print_json({"schema_version": VERIFY_SCHEMA, **document})
        raise typer.Exit(error.exit_code) from error
    if as_json:
        described = {**_described(found, env), "ok": True, "differences": {}}
        print_json({"schema_version": VERIFY_SCHEMA, **described})
        return
    out().print(f"{found.root}  is what its bundle holds, {found.sha256}", markup=False)


def uninstall(
    tag: Tag,
    env: Where,
    *,
    lock: LockOption = None,
    user: User = None,
    setups: Setups = False,
    as_json: Json = False,
) -> None:
    """Take a capsule out of an environment."""
    registry = open_registry(lock)
    removed = uninstall_capsule(tag, opened(env, user), registry=registry, setups=setups)
    if as_json:
        print_json({"schema_version": UNINSTALL_SCHEMA, "environment": env, "tag": tag, "removed": removed})
        return
    out().print(f"{tag}  {'removed' if removed else 'was not there'}", markup=False)


def _described(found: Installed, env: str) -> dict[str, object]:
    return {
        "environment": env,
        "tag": found.tag,
        "platform": found.platform,
        "root": found.root,
        "sha256": found.sha256,
        "launcher": found.launcher,
        "tools": dict(found.tools),
        "setup_root": found.setup_root,
        "notes": list(found.notes),
    }


def _as_document(target: Target, platform: str | None, problem: CapsuleError | None) -> dict[str, object]:
    program = target.program
    return {
        "schema_version": PROBE_SCHEMA,
        "environment": target.name,
        "platform": platform,
        "architecture": None if program is None else program.machine,
        "libc": target.libc,
        "libc_version": target.libc_version,
        "user": target.user,
        "has_shell": target.has_shell,
        "free_bytes": target.free_bytes,
        "tmp_options": sorted(target.tmp_options),
        "capsules": [
            {
                "name": name,
                "sha256": present.mark.digest,
                "has_setup_root": present.mark.digest in target.capsules.setups,
            }
            for name, present in sorted(target.capsules.installed.items())
        ],
        "problem": None if problem is None else {"message": problem.message, "hint": problem.hint},
        "notes": list(target.notes),
    }


def _print_target(target: Target, platform: str | None) -> None:
    libc = "none of its own" if target.libc is None else f"{target.libc} {target.libc_version or ''}".strip()
    room = "unknown" if target.free_bytes is None else human_size(target.free_bytes)
    installed = ", ".join(sorted(target.capsules.installed)) or "none"
    for name, value in (
        ("environment", target.name),
        ("platform", platform or "none that capsules are made for"),
        ("C library", libc),
        ("user", str(target.user)),
        ("room in /tmp", room),
        ("capsules", installed),
    ):
        out().print(f"{name:<14}{value}", markup=False)
    print_notes(target.notes)
