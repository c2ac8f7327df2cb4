"""`sign`: signatures of bundles, their provenance and their SBOMs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from . import panels
from .choice import Bundles, Dist, choose_bundles
from .output import Json, err, out, print_json
from .progress import build_reporter

if TYPE_CHECKING:
    from ..release.signer import SigningOptions

SCHEMA_VERSION: Final = "capsule-build.sign.v1"

Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Sign with a private key (PEM, ECDSA P-256)."),
]
Token = Annotated[
    Path | None,
    typer.Option(
        "--identity-token",
        metavar="FILE",
        help="A file with an OIDC token; '-': standard input. Default: SIGSTORE_ID_TOKEN, the CI's own, "
        "or signing in with a browser.",
    ),
]
TrustConfig = Annotated[
    Path | None,
    typer.Option("--trust-config", metavar="FILE", help="Another Sigstore instance than the public one."),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, max=86400, help="For each step over the network."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("sign", rich_help_panel=panels.RELEASE)(sign)


def sign(
    bundles: Bundles = None,
    *,
    dist: Dist = None,
    key: Key = None,
    identity_token: Token = None,
    trust_config: TrustConfig = None,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """Sign bundles, their provenance and their SBOMs. Nothing is written before all signatures are made."""
    from ..release.outputs import publish
    from ..release.signing import open_signer, sign_bundle

    chosen = choose_bundles(bundles, dist)
    settings = signing_options(key, identity_token, trust_config, timeout)
    made: dict[Path, bytes] = {}
    with build_reporter(err()) as report, open_signer(settings, say=report.note) as signer:
        for bundle in chosen:
            report.step(f"Sign {bundle.name}")
            made.update(sign_bundle(bundle, signer))
        publish(made)
        identity = signer.identity
    if as_json:
        print_json(
            {"schema_version": SCHEMA_VERSION, "signer": identity, "files": [str(path) for path in made]}
        )
        return
    out().print(f"Signed as {escape(identity)}:")
    for path in made:
        out().print(f"  {escape(str(path))}")


def signing_options(
    key: Path | None, identity_token: Path | None, trust_config: Path | None, timeout: float
) -> SigningOptions:
    """Return what the options of signing say; a person at a terminal may be sent to a browser."""
    from ..release.signer import SigningOptions

    return SigningOptions(
        key=key,
        trust_config=trust_config,
        identity_token=identity_token,
        interactive=sys.stdin.isatty(),
        seconds=timeout,
    )
