"""What a verifier asks of a release. The caller picks the kind of signature; a file never does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from ..runtime.archive import BundleInfo
    from .provenance import Provenance


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
