"""What a signer is, and what decides which one signs: the words that the steps of a release share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from pathlib import Path

NETWORK_SECONDS: Final = 30.0
"""How long one step over the network (a certificate, a log entry, a timestamp) may take."""


class Signer(Protocol):
    """Signs files and statements; what it returns is a Sigstore bundle, version 0.3, as JSON."""

    @property
    def identity(self) -> str:
        """Who signs, for people: an identity and its issuer, or a key's hint."""

    def sign_artifact(self, path: Path) -> bytes:
        """Sign a file's SHA-256.

        Raises:
            SignatureError: It can't be signed.
        """

    def sign_statement(self, data: bytes) -> bytes:
        """Sign an in-toto statement, exactly these bytes, in a DSSE envelope.

        Raises:
            SignatureError: It can't be signed.
        """


@dataclass(frozen=True)
class SigningOptions:
    """Who signs, and with which instance of Sigstore.

    Attributes:
        key: A private key (PEM, ECDSA P-256): signs with it, without Sigstore's services.
        trust_config: The client trust configuration of another instance than the public one.
        identity_token: A file that holds an OIDC token. Without: `SIGSTORE_ID_TOKEN`, then what the CI has.
        interactive: Whether a person may be sent to a browser where no token is to be had.
        seconds: How long one step over the network may take.
    """

    key: Path | None = None
    trust_config: Path | None = None
    identity_token: Path | None = None
    interactive: bool = False
    seconds: float = NETWORK_SECONDS
