"""`capsule use`, `seal` and `setup`: what is installed with a capsule, and made to run without it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...runtime import process
from ...runtime.environment import Attachable
from ...runtime.errors import TargetError
from ...runtime.harness import load_harness
from ...runtime.installing import installed, not_installed
from ...runtime.sealing import seal as seal_root
from ...runtime.setup import set_up
from ..output import Json, out, print_json, print_table
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
    from ...runtime.environment import Environment
    from ...runtime.installing import Installed
    from ...runtime.registry import Registry
    from ...runtime.sealing import SealReport

SEAL_SCHEMA: Final = "capsule.seal.v1"
SETUP_SCHEMA: Final = "capsule.setup.v1"

Command = Annotated[
    list[str], typer.Argument(metavar="-- CMD [ARG]...", help="The command and its arguments, behind '--'.")
]
HarnessFile = Annotated[
    Path, typer.Argument(metavar="HARNESS.json", help="What to set up: see docs/harnesses.md.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("setup", rich_help_panel=CAPSULES)(setup)
    app.command("use", rich_help_panel=CAPSULES)(use)
    app.command("seal", rich_help_panel=CAPSULES)(seal)


def setup(
    harness: HarnessFile,
    env: Where,
    *,
    lock: LockOption = None,
    data_dir: DataDir = None,
    user: User = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Set a harness up in an environment: install it with its capsule, seal it, and try it."""
    wanted = load_harness(harness)
    # Without a capsule's tag nothing of capsules happens: no lock is read.
    registry = None
    if wanted.setup_capsule_tag is not None:
        registry = open_registry(lock)
        check_named(wanted.setup_capsule_tag, registry)
    environment = opened(env, user)
    with stages() as progress:
        done = set_up(
            wanted,
            environment,
            registry=registry,
            store=open_store(data_dir),
            replace=replace,
            progress=progress,
        )
    if as_json:
        print_json({"schema_version": SETUP_SCHEMA, "environment": env, **done.as_json()})
        return
    print_notes(done.notes)
    out().print(done.path, markup=False)


def use(
    tag: Tag,
    env: Where,
    command: Command,
    *,
    lock: LockOption = None,
    user: User = None,
) -> None:
    """Run a command with a capsule's tools on PATH, as installing does.

    Packages that it installs go into the capsule's setup root. Input, output and exit status are the
    command's.
    """
    registry = open_registry(lock)
    environment = opened(env, user)
    found = _installed(tag, environment, registry=registry)
    if not isinstance(environment, Attachable):
        raise TargetError(f"{environment.name}: a program can't have this terminal there.")
    terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout))
    argv = [found.launcher, "--setup-root", found.setup_root, "--", *command]
    # Not as a code that Typer returns: 130 is the command's own status, and no interrupt of this one.
    sys.exit(process.attach(environment.attached(argv, terminal=terminal)))


def seal(
    tag: Tag,
    env: Where,
    *,
    lock: LockOption = None,
    user: User = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Seal what was installed with a capsule, so that it runs without it on PATH. Safe to repeat."""
    registry = open_registry(lock)
    environment = opened(env, user)
    report = seal_root(_installed(tag, environment, registry=registry), environment, dry_run=dry_run)
    if as_json:
        print_json({"schema_version": SEAL_SCHEMA, "environment": env, "tag": tag, "seal": report.as_json()})
    else:
        _print_report(report)
    if report.failures:
        raise typer.Exit(1)


def _installed(tag: str, environment: Environment, *, registry: Registry) -> Installed:
    found = installed(tag, environment, registry=registry)
    if found is None:
        raise not_installed(tag, environment)
    return found


def _print_report(report: SealReport) -> None:
    verb = "would be changed" if report.dry_run else "changed"
    print_table(
        ("what", verb),
        [
            ("first lines of scripts", str(len(report.scripts))),
            ("loaders of programs", str(len(report.interpreters))),
            ("run paths of programs and libraries", str(len(report.rpaths))),
        ],
    )
    out().print(
        f"{report.scanned} files in {report.root}; {report.already_sealed} were sealed before.", markup=False
    )
    for title, items in (("left alone", report.skipped), ("FAILED", report.failures)):
        for item in items:
            out().print(f"{title}: {item.path}: {item.reason}", markup=False)
