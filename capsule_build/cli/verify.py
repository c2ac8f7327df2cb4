"""`verify`: whether bundles are what they should be, and from whom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from ..runtime.errors import CapsuleError, UsageError
from . import options, panels
from .choice import Bundles, Dist, choose_bundles
from .output import out, print_error, print_facts, print_json

if TYPE_CHECKING:
    from ..release.policy import Policy, Verified

SCHEMA_VERSION: Final = "capsule-build.verify.v1"

_Identity = Annotated[
    str | None,
    typer.Option("--identity", metavar="ID", help="Who must have signed: a workflow's URI, an address."),
]
_Issuer = Annotated[
    str | None,
    typer.Option("--issuer", metavar="URL", help="The OIDC issuer that must have vouched for it."),
]
_PublicKey = Annotated[
    Path | None,
    typer.Option("--public-key", metavar="FILE", help="Verify signatures of a key (PEM, ECDSA P-256)."),
]
_Root = Annotated[
    Path | None,
    typer.Option(
        "--trust-root",
        "--trust-config",
        metavar="FILE",
        help="A trusted root, or a trust configuration. Default: the public instance's.",
    ),
]
_Builder = Annotated[
    str | None,
    typer.Option(
        "--builder",
        metavar="URI",
        help="The builder that the provenance must name. Default: the identity, if it is an https URI; "
        "else a local one.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify", rich_help_panel=panels.RELEASE)(verify)


def verify(
    bundles: Bundles = None,
    *,
    dist: Dist = None,
    identity: _Identity = None,
    issuer: _Issuer = None,
    public_key: _PublicKey = None,
    trust_root: _Root = None,
    builder: _Builder = None,
    as_json: bool = options.JSON,
) -> None:
    """Verify bundles: signatures, provenance, SBOM, and the bundle's contract. Needs no network."""
    from ..release.verification import verify_release

    policy = _policy(identity, issuer, public_key, trust_root, builder)
    chosen = choose_bundles(bundles, dist)
    verified: list[Verified] = []
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


def _policy(
    identity: str | None,
    issuer: str | None,
    public_key: Path | None,
    trust_root: Path | None,
    builder: str | None,
) -> Policy:
    from ..release.policy import KeylessPolicy, KeyPolicy

    if public_key is not None:
        if identity or issuer or trust_root:
            raise UsageError(
                "--public-key asks for a key's signature; --identity, --issuer and --trust-root for others.",
                hint="Give the options of one of the two.",
            )
        return KeyPolicy(public_key, builder)
    if not identity or not issuer:
        raise UsageError(
            "Whose signature must it be? A keyless one needs --identity and --issuer, both.",
            hint="Or give --public-key. Without them anybody's signature would do.",
        )
    return KeylessPolicy(identity, issuer, trust_root, builder)


def _print_verified(verified: list[Verified]) -> None:
    for item in verified:
        out().print(f"[green]verified[/] {escape(item.bundle.name)}")
        signed_at = item.signed_at.isoformat(timespec="seconds") if item.signed_at else "unknown"
        print_facts(
            (
                ("sha256", item.info.sha256),
                ("signed by", item.signer),
                ("at", signed_at),
                ("built by", item.provenance.builder.id),
                ("overrides", ", ".join(item.provenance.overrides) or "none"),
            ),
            indent="  ",
        )


def _print_verified_json(verified: list[Verified], failed: dict[Path, CapsuleError]) -> None:
    entries: list[dict[str, object]] = [
        {
            "bundle": str(item.bundle),
            "ok": True,
            "sha256": item.info.sha256,
            "signer": item.signer,
            "signed_at": item.signed_at.isoformat(timespec="seconds") if item.signed_at else None,
            "builder": item.provenance.builder.id,
            "overrides": list(item.provenance.overrides),
        }
        for item in verified
    ]
    entries += [
        {"bundle": str(path), "ok": False, "error": error.message, "exit_code": error.exit_code}
        for path, error in failed.items()
    ]
    print_json({"schema_version": SCHEMA_VERSION, "ok": not failed, "bundles": entries})
