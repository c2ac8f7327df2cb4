"""Whose signatures count, and which services make them: Sigstore's trusted root and trust configuration.

Formats: sigstore's protobuf-specs, `application/vnd.dev.sigstore.trustedroot+json;version=0.1` and
`application/vnd.dev.sigstore.clienttrustconfig.v0.1+json`.

Without a file those of the public instance count, as the installed sigstore package carries them. The folder
that sigstore updates them into is never read: whoever can write there would decide what is trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sigstore._internal.tuf import DEFAULT_TUF_URL
from sigstore._utils import read_embedded
from sigstore.errors import Error as SigstoreError
from sigstore.models import ClientTrustConfig, TrustedRoot
from sigstore.verify import Verifier
from sigstore_models.trustroot import v1

from ..runtime.errors import ContractError, UsageError
from ..runtime.strict_json import JsonError, loads_object

if TYPE_CHECKING:
    from pathlib import Path

_ROOT: Final = TrustedRoot.TrustedRootType.TRUSTED_ROOT_0_1.value
_CONFIG: Final = ClientTrustConfig.ClientTrustConfigType.CONFIG_0_1.value
_MAX_BYTES: Final = 4 << 20


def load_trusted_root(path: Path | None) -> TrustedRoot:
    """Return a trusted root.

    Args:
        path: A trusted root, or a client trust configuration, whose root counts; `None`: the public one's.

    Raises:
        UsageError: The file can't be read.
        ContractError: It is neither.
    """
    if path is None:
        return TrustedRoot(v1.TrustedRoot.from_json(read_embedded("trusted_root.json", DEFAULT_TUF_URL)))
    data, kind = _read(path)
    try:
        if kind == _ROOT:
            return TrustedRoot(v1.TrustedRoot.from_json(data))
        if kind == _CONFIG:
            return ClientTrustConfig.from_json(data.decode()).trusted_root
    except (ValueError, SigstoreError) as error:
        raise ContractError(f"{path} isn't a valid {kind}: {_first_line(error)}") from error
    raise ContractError(
        f"{path} is neither a trusted root nor a client trust configuration: its mediaType is {kind!a}."
    )


def load_trust_config(path: Path | None) -> ClientTrustConfig:
    """Return a client trust configuration: services to sign with, and a trusted root.

    Args:
        path: The file; `None`: the public instance's.

    Raises:
        UsageError: The file can't be read.
        ContractError: It isn't one, or names no service that can be used.
    """
    if path is None:
        return ClientTrustConfig(
            v1.ClientTrustConfig(
                media_type=_CONFIG,
                trusted_root=v1.TrustedRoot.from_json(read_embedded("trusted_root.json", DEFAULT_TUF_URL)),
                signing_config=v1.SigningConfig.from_json(
                    read_embedded("signing_config.v0.2.json", DEFAULT_TUF_URL)
                ),
            )
        )
    data, kind = _read(path)
    if kind != _CONFIG:
        raise ContractError(f"{path} isn't a client trust configuration: its mediaType is {kind!a}.")
    try:
        return ClientTrustConfig.from_json(data.decode())
    except (ValueError, SigstoreError) as error:
        raise ContractError(
            f"{path} isn't a valid client trust configuration: {_first_line(error)}"
        ) from error


def verifier_of(root: TrustedRoot) -> Verifier:
    """Return what verifies against a trusted root.

    Raises:
        ContractError: It holds a certificate that isn't one.
    """
    try:
        return Verifier(trusted_root=root)
    except (SigstoreError, ValueError) as error:
        raise ContractError(f"The trusted root can't be used: {_first_line(error)}") from error


def _read(path: Path) -> tuple[bytes, str]:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The trust file {path} can't be read: {error.strerror}.") from error
    if len(data) > _MAX_BYTES:
        raise ContractError(f"{path} has more than {_MAX_BYTES} bytes.")
    try:
        kind = loads_object(data).get("mediaType")
    except JsonError as error:
        raise ContractError(f"{path} isn't a trusted root or a trust configuration: {error}.") from error
    return data, str(kind)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
