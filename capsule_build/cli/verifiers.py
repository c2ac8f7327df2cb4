"""The options that say whose signature it must be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Identity = Annotated[
    str | None,
    typer.Option("--identity", metavar="ID", help="Who must have signed: a workflow's URI, an address."),
]
Issuer = Annotated[
    str | None,
    typer.Option("--issuer", metavar="URL", help="The OIDC issuer that must have vouched for it."),
]
PublicKey = Annotated[
    Path | None,
    typer.Option("--public-key", metavar="FILE", help="Verify signatures of a key (PEM, ECDSA P-256)."),
]
TrustRoot = Annotated[
    Path | None,
    typer.Option(
        "--trust-root",
        "--trust-config",
        metavar="FILE",
        help="A trusted root, or a trust configuration. Default: the public instance's.",
    ),
]
Builder = Annotated[
    str | None,
    typer.Option(
        "--builder",
        metavar="URI",
        help="The builder that the provenance must name. Default: the identity, if it is an https URI; "
        "else a local one.",
    ),
]


def words_of(
    identity: str | None,
    issuer: str | None,
    public_key: Path | None,
    trust_root: Path | None,
    builder: str | None,
) -> dict[str, str] | None:
    """Return what the options ask for, by the words of `capsule.toml`; `None`: nothing."""
    given = {
        "identity": identity,
        "issuer": issuer,
        "public_key": public_key,
        "trust_root": trust_root,
        "builder": builder,
    }
    return {name: str(value) for name, value in given.items() if value is not None} or None
