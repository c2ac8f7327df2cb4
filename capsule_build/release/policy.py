"""What a verifier asks of a release. The caller picks the kind of signature; a file never does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..runtime.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ..runtime.archive import BundleInfo
    from ..sandbox.artifact import Artifact
    from .provenance import Provenance
    from .task_provenance import TaskProvenance


@dataclass(frozen=True)
class KeylessPolicy:
    """Signed with a certificate that Sigstore gave for an identity.

    Attributes:
        identity: The certificate's identity: a workflow's URI, an e-mail address.
        issuer: The OIDC issuer that vouched for it, a URL.
        trust_root: A trusted root, or a client trust configuration that holds one: whose certificates and
            logs count. `None`: those of the public instance, as the sigstore package carries them.
        builder: The URI that the provenance must name as its builder; `None`: the identity where that is a
            URI, else the local builder.
    """

    identity: str
    issuer: str
    trust_root: Path | None = None
    builder: str | None = None


@dataclass(frozen=True)
class KeyPolicy:
    """Signed with a key.

    Attributes:
        public_key: The public key (PEM, ECDSA P-256).
        builder: As in `KeylessPolicy`; `None`: the local builder.
    """

    public_key: Path
    builder: str | None = None


Policy = KeylessPolicy | KeyPolicy


def make_policy(
    identity: str | None,
    issuer: str | None,
    public_key: Path | None,
    trust_root: Path | None,
    builder: str | None,
) -> Policy:
    """Return what a verifier asks for, from what its caller gave; each is `None` where nothing was given.

    Raises:
        UsageError: They don't go together, or would let anybody sign.
    """
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


@dataclass(frozen=True)
class Verified:
    """A bundle of which all holds.

    Attributes:
        bundle: Its path.
        info: What it is, by its contract.
        provenance: What it was made of.
        signer: Who signed, for people.
        signed_at: When, as the log or the timestamp authority saw it; `None` for a key.
    """

    bundle: Path
    info: BundleInfo
    provenance: Provenance
    signer: str
    signed_at: datetime | None


@dataclass(frozen=True)
class VerifiedTask:
    """A task bundle of which all holds.

    Attributes:
        bundle: Its path.
        artifact: What it holds.
        provenance: What it was packed from.
        signer: Who signed, for people.
        signed_at: As in `Verified`.
    """

    bundle: Path
    artifact: Artifact
    provenance: TaskProvenance
    signer: str
    signed_at: datetime | None
