"""`release`: from recipes to signed bundles that the registry lock names, with one command."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..resources import default_dist
from ..runtime.errors import UsageError
from . import options, panels
from .definitions import load_definitions
from .lock import AllowOverrides, BaseUrl, Dist, Lock, Replace, lock_path, print_changes
from .output import Json, err, human_size, out, print_json, print_table
from .sign import Key, Timeout, Token, TrustConfig, signing_options
from .workshop import open_workshop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ..build import Reporter
    from ..recipes import Recipe
    from ..release.releasing import Item, Release
    from ..release.signer import Signer, SigningOptions

SCHEMA_VERSION = "capsule-build.release.v1"

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[RECIPE[:LIBC]]...", help="The capsules.", show_default=False)
]
Everything = Annotated[bool, typer.Option("--all", help="Every recipe, for every libc.")]
Libcs = Annotated[
    list[str] | None, typer.Option("--libc", metavar="LIBC", help="Only for this one. Can be repeated.")
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="[RECIPE[:LIBC]:]NAME=PATH",
        help="Your own file or folder in an input's place. Can be repeated.",
    ),
]
Versions = Annotated[
    list[str] | None,
    typer.Option(
        "--runtime-version",
        metavar="[RECIPE[:LIBC]:]NAME=VERSION",
        help="Another exact version of a runtime than the pinned one. Can be repeated.",
    ),
]
Prebuilt = Annotated[bool, typer.Option("--prebuilt", help="Build nothing; fail where something is missing.")]
NoSign = Annotated[
    bool, typer.Option("--no-sign", help="Build and check only: no signature, and nothing in the lock.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be built, and do nothing.")]


def register(app: typer.Typer, recipes: Mapping[str, Recipe], folder: Path) -> None:
    """Add the command."""

    @app.command("release", rich_help_panel=panels.RELEASE)
    def release(
        names: Names = None,
        everything: Everything = False,
        libc: Libcs = None,
        source: Sources = None,
        runtime_version: Versions = None,
        dist: Dist = None,
        lock: Lock = None,
        base_url: BaseUrl = None,
        replace: Replace = False,
        allow_overrides: AllowOverrides = False,
        prebuilt: Prebuilt = False,
        no_sign: NoSign = False,
        key: Key = None,
        identity_token: Token = None,
        trust_config: TrustConfig = None,
        timeout: Timeout = 30.0,
        container_cli: str = options.ENGINE,
        newer_pins: bool = options.NEWER,
        dry_run: DryRun = False,
        as_json: Json = False,
    ) -> None:
        """Build what is missing, then sign it and put it into the registry lock: all of it, or nothing.

        What was built stays when something fails, and the same command goes on from there.
        """
        # The engines' and Sigstore's packages take a while to import; a wrong option must not wait for them.
        from ..lock import parse_base_url
        from ..release.keys import load_private_key
        from ..release.releasing import (
            LockRequest,
            check_request,
            complete,
            require_finished,
            sign_and_lock,
            survey,
        )
        from ..release.selection import parse_scoped, plan_release, select

        if no_sign and (key or identity_token or trust_config or base_url or replace):
            raise UsageError(
                "--no-sign neither signs nor locks: the options for that mean nothing beside it."
            )
        selected = select(recipes, names or (), everything=everything, libcs=libc or ())
        definitions = load_definitions(folder, *(each.recipe for each in selected))
        plans = plan_release(
            selected,
            definitions.pins,
            dist=dist or default_dist(),
            sources=parse_scoped("--source", source or ()),
            versions=parse_scoped("--runtime-version", runtime_version or ()),
        )
        request = LockRequest(
            path=lock_path(lock),
            base_urls=[parse_base_url(text) for text in base_url or ()],
            replace_digests=replace,
            allow_overrides=allow_overrides,
        )
        if not no_sign:
            check_request(plans, request)
            # What comes out of a pipe can be read only once.
            if key is not None and not key.is_fifo():
                load_private_key(key)
        choice = options.engine_choice(container_cli, None)
        items = survey(plans, definitions.templates, newer=newer_pins)
        if dry_run:
            _print(items, None, as_json=as_json, planned=True)
            return
        stage = _Stage()
        if prebuilt:
            require_finished(items)
        complete(items, functools.partial(open_workshop, choice, definitions, newer=newer_pins), stage)
        if no_sign:
            _print(items, None, as_json=as_json)
            return
        signing = signing_options(key, identity_token, trust_config, timeout)
        released = sign_and_lock(items, request, functools.partial(_signer, signing), stage)
        _print(items, released, as_json=as_json, lock=request.path)


class _Stage:
    """Says on standard error how a release goes on."""

    @contextlib.contextmanager
    def building(self, item: Item) -> Iterator[Reporter]:
        """Say what is built, and why, and show how that goes on."""
        from .progress import build_reporter

        made = item.plan.manifest
        err().print(f"[bold]{made.runtime_id} {made.runtime_version}[/] for {made.platform}: it {item.why}.")
        with build_reporter(err()) as report:
            yield report

    def signed(self, bundle: Path) -> None:
        """Say it."""
        err().print(f"Signed {bundle.name}", markup=False)


@contextlib.contextmanager
def _signer(settings: SigningOptions) -> Iterator[Signer]:
    from ..release.signing import open_signer

    with open_signer(settings, say=functools.partial(err().print, markup=False)) as signer:
        yield signer


def _print(
    items: tuple[Item, ...],
    released: Release | None,
    *,
    as_json: bool,
    lock: Path | None = None,
    planned: bool = False,
) -> None:
    if as_json:
        print_json(_json(items, released, lock))
        return
    rows = []
    for item in items:
        bundle = item.outputs.bundle
        size = human_size(bundle.stat().st_size) if bundle.is_file() else ""
        todo = f"it {item.why}" if planned else "built"
        rows.append((bundle.name, size, "finished before" if item.why is None else todo))
    print_table(("bundle", "size", "state"), rows)
    if released is not None and lock is not None:
        out().print(f"Signed as {released.signer}.", markup=False)
        print_changes(lock, released.changes)


def _json(items: tuple[Item, ...], released: Release | None, lock: Path | None) -> dict[str, Any]:
    from ..runtime.files import sha256_file

    bundles = []
    for item in items:
        bundle = item.outputs.bundle
        there = bundle.is_file()
        bundles.append(
            {
                "recipe": item.plan.recipe.id,
                "libc": item.plan.platform.libc,
                "tag": item.plan.recipe.tag,
                "platform": str(item.plan.platform),
                "filename": bundle.name,
                "path": str(bundle),
                "sha256": sha256_file(bundle) if there else None,
                "size": bundle.stat().st_size if there else None,
                "finished_before": item.why is None,
                "why": item.why,
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "bundles": bundles,
        "signer": released and released.signer,
        "lock": None if lock is None else str(lock),
        "changes": [
            {
                "tag": change.tag,
                "platform": str(change.platform),
                "sha256": change.after and change.after.sha256,
            }
            for change in (released.changes if released else ())
        ],
    }
