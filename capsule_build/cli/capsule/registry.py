"""`capsule tags` and `capsule fetch`: what the registry lock names, and getting it into the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...runtime.errors import UsageError
from ...runtime.files import sha256_file
from ...runtime.local import LocalEnvironment
from ...runtime.platforms import Platform
from ...runtime.probing import probe
from ...runtime.registry import TASK_PLATFORM
from ..output import Json, human_size, out, print_json, print_table
from ..stages import stages
from .panels import CAPSULES
from .targets import (
    DataDir,
    LockOption,
    Replace,
    Tag,
    check_named,
    lock_path,
    open_registry,
    open_store,
)

if TYPE_CHECKING:
    from ...runtime.registry import Capsule, Registry, Resolved, ResolvedTask

TAGS_SCHEMA: Final = "capsule.tags.v1"
FETCH_SCHEMA: Final = "capsule.fetch.v1"

PlatformOption = Annotated[
    str | None,
    typer.Option(
        "--platform",
        metavar="PLATFORM",
        help="The platform, such as linux-x86_64-glibc. Default: this machine's, or that of the --from file.",
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="Copy this file, such as one that was built, into the store."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("tags", rich_help_panel=CAPSULES)(tags)
    app.command("fetch", rich_help_panel=CAPSULES)(fetch)


def tags(*, lock: LockOption = None, data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the capsules that there are: their tags, platforms and tools; and the tasks."""
    registry, store = open_registry(lock), open_store(data_dir)
    found = [
        (tag, capsule, platform, variant)
        for tag, capsule in sorted(registry.capsules.items())
        for platform, variant in sorted(capsule.variants.items())
    ]
    if as_json:
        print_json(
            {
                "schema_version": TAGS_SCHEMA,
                "lock": str(lock_path(lock)),
                "capsules": [
                    {
                        "tag": tag,
                        "runtime": {"id": capsule.runtime_id, "version": capsule.runtime_version},
                        "tools": sorted(capsule.tools),
                        "platform": str(platform),
                        "sha256": variant.sha256,
                        "size": variant.size,
                        "urls": list(variant.urls),
                        "revoked": variant.revoked,
                        "stored": store.path(variant).is_file(),
                    }
                    for tag, capsule, platform, variant in found
                ],
                "tasks": [
                    {
                        "name": name,
                        "platform": TASK_PLATFORM,
                        "version": task.version,
                        "sha256": task.sha256,
                        "size": task.size,
                        "urls": list(task.urls),
                        "revoked": task.revoked,
                        "stored": store.path(task).is_file(),
                    }
                    for name, task in sorted(registry.tasks.items())
                ],
            }
        )
        return
    print_table(
        ("tag", "platform", "version", "size", "here", "tools"),
        [
            (
                tag,
                str(platform),
                capsule.runtime_version if variant.revoked is None else f"revoked: {variant.revoked}",
                human_size(variant.size),
                "yes" if store.path(variant).is_file() else "no",
                " ".join(sorted(capsule.tools)),
            )
            for tag, capsule, platform, variant in found
        ]
        + [
            (
                name,
                TASK_PLATFORM,
                (task.version or "") if task.revoked is None else f"revoked: {task.revoked}",
                human_size(task.size),
                "yes" if store.path(task).is_file() else "no",
                "capsule exec",
            )
            for name, task in sorted(registry.tasks.items())
        ],
    )


def fetch(
    tag: Tag,
    *,
    platform: PlatformOption = None,
    source: From = None,
    lock: LockOption = None,
    data_dir: DataDir = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Get the bundle of a capsule, or of a task, into the store, or check the one that is there."""
    registry = open_registry(lock)
    resolved, store = _resolved(registry, tag, platform, source), open_store(data_dir)
    if source is not None:
        path = store.add(resolved, source, replace=replace)
    else:
        with stages() as progress:
            path = store.get(
                resolved, replace=replace, progress=lambda done, total: progress("download", done, total)
            )
    if as_json:
        print_json(
            {
                "schema_version": FETCH_SCHEMA,
                "tag": tag,
                "platform": str(resolved.platform),
                "path": str(path),
                "sha256": resolved.variant.sha256,
                "size": resolved.variant.size,
            }
        )
        return
    out().print(str(path), markup=False)


def _resolved(
    registry: Registry, tag: str, platform: str | None, source: Path | None
) -> Resolved | ResolvedTask:
    if tag in registry.tasks and (platform == TASK_PLATFORM or tag not in registry.capsules):
        if platform not in (None, TASK_PLATFORM):
            raise UsageError(f"'{tag}' is a task, which is for {TASK_PLATFORM} and not for {platform}.")
        return registry.task(tag)
    check_named(tag, registry)
    wanted = Platform.parse(platform) if platform is not None else _platform(registry.capsule(tag), source)
    return registry.resolve(tag, wanted)


def _platform(capsule: Capsule, source: Path | None) -> Platform:
    """Return the platform whose bundle a file is; without a file, or if it is none, this machine's."""
    if source is not None:
        try:
            found = sha256_file(source)
        except OSError as error:
            raise UsageError(f"The file '{source}' can't be read: {error.strerror}.") from error
        for platform, variant in capsule.variants.items():
            if variant.sha256 == found:
                return platform
    return probe(LocalEnvironment()).platform
