"""`verify`: whether bundles are what they should be, and from whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer
from rich.markup import escape

from ..runtime.errors import CapsuleError
from . import packed, panels
from .choice import Bundles, Dist, choose_bundles
from .output import Json, out, print_error, print_facts, print_json
from .verifiers import Builder, Identity, Issuer, PublicKey, TrustRoot  # noqa: TC001 (Typer reads them)

if TYPE_CHECKING:
    from pathlib import Path

    from ..release.policy import Verified, VerifiedTask

SCHEMA_VERSION: Final = "capsule-build.verify.v1"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify", rich_help_panel=panels.RELEASE)(verify)


def verify(
    bundles: Bundles = None,
    *,
    dist: Dist = None,
    identity: Identity = None,
    issuer: Issuer = None,
    public_key: PublicKey = None,
    trust_root: TrustRoot = None,
    builder: Builder = None,
    as_json: Json = False,
) -> None:
    """Verify bundles: signatures, provenance, SBOM, and the bundle's contract. Needs no network."""
    from ..release.policy import make_policy
    from ..release.verification import verify_release

    policy = make_policy(identity, issuer, public_key, trust_root, builder)
    chosen = choose_bundles(bundles, dist)
    verified: list[Verified | VerifiedTask] = []
    failed: dict[Path, CapsuleError] = {}
    for bundle in chosen:
        try:
            verified.append(verify_release(bundle, policy))
        except CapsuleError as reason:
            failed[bundle] = reason
    if as_json:
        _print_verified_json(verified, failed)
    elif verified:
        _print_verified(verified)
    for error in failed.values():
        print_error(error)
    if failed:
        raise typer.Exit(next(iter(failed.values())).exit_code)


def _print_verified(verified: list[Verified | VerifiedTask]) -> None:
    for item in verified:
        out().print(f"[green]verified[/] {escape(item.bundle.name)}")
        signed_at = item.signed_at.isoformat(timespec="seconds") if item.signed_at else "unknown"
        print_facts(
            (
                ("sha256", item.provenance.statement.sha256),
                ("signed by", item.signer),
                ("at", signed_at),
                ("built by", item.provenance.builder.id),
                *_particulars(item),
            ),
            indent="  ",
        )


def _particulars(item: Verified | VerifiedTask) -> list[tuple[str, str]]:
    """Return what is told of one kind of bundle only."""
    from ..release.policy import VerifiedTask

    if isinstance(item, VerifiedTask):
        return packed.particulars(item.artifact)
    return [("overrides", ", ".join(item.provenance.overrides) or "none")]


def _print_verified_json(verified: list[Verified | VerifiedTask], failed: dict[Path, CapsuleError]) -> None:
    entries: list[dict[str, object]] = [
        {
            "bundle": str(item.bundle),
            "ok": True,
            "sha256": item.provenance.statement.sha256,
            "signer": item.signer,
            "signed_at": item.signed_at.isoformat(timespec="seconds") if item.signed_at else None,
            "builder": item.provenance.builder.id,
            **_particulars_json(item),
        }
        for item in verified
    ]
    entries += [
        {"bundle": str(path), "ok": False, "error": error.message, "exit_code": error.exit_code}
        for path, error in failed.items()
    ]
    print_json({"schema_version": SCHEMA_VERSION, "ok": not failed, "bundles": entries})


def _particulars_json(item: Verified | VerifiedTask) -> dict[str, object]:
    from ..release.policy import VerifiedTask

    if isinstance(item, VerifiedTask):
        return {"guest": item.artifact.guest._asdict(), "tasks": packed.tasks_json(item.artifact)}
    return {"overrides": list(item.provenance.overrides)}
