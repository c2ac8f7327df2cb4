"""Signs what lies beside a bundle: the bundle, its provenance, its SBOM.

All signatures of all bundles are made before the first file is written.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sigstore.errors import Error as SigstoreError

from ..runtime.errors import ContractError, UsageError
from ..runtime.files import sha256_file
from ..runtime.strict_json import JsonError, loads_object
from ..sandbox.artifact import read_artifact_bytes
from ..sbom import check_sbom
from .identity import Tokens
from .keyless import KeylessSigner
from .keys import load_private_key
from .outputs import Outputs, digest_line, is_task
from .provenance import read_provenance
from .statements import SBOM_PREDICATE_TYPE, Statement
from .task_contract import check_task
from .task_provenance import read_task_provenance
from .trust import load_trust_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .signer import Signer, SigningOptions


@contextlib.contextmanager
def open_signer(options: SigningOptions, *, say: Callable[[str], None]) -> Iterator[Signer]:
    """Yield what signs: a key, or an identity's certificate, which is asked for at once.

    Args:
        options: Who signs, and with which instance.
        say: Hears what a person should know, as where to sign in.

    Raises:
        UsageError: The options don't go together, a file can't be read, or there is no identity.
        ContractError: The trust configuration isn't one.
        SignatureError: The identity is refused.
        ServiceError: A signing service fails.
    """
    if options.key is not None:
        if options.trust_config or options.identity_token:
            raise UsageError(
                "A key signs without an identity: no --identity-token or --trust-config goes with --key."
            )
        yield load_private_key(options.key)
        return
    config = load_trust_config(options.trust_config)
    try:
        services = config.signing_config
    except (SigstoreError, ValueError) as error:
        raise ContractError(f"The trust configuration names no services to sign with: {error}") from error
    tokens = Tokens(
        file=options.identity_token,
        interactive=options.interactive,
        config=services,
        seconds=options.seconds,
        say=say,
    )
    yield KeylessSigner(config, tokens, options.seconds)


def sign_bundle(bundle: Path, signer: Signer) -> dict[Path, bytes]:
    """Return the signatures of a bundle, its provenance and its SBOM, by the names that they get.

    Nothing is written: `outputs.publish` does that, for as many bundles as there are.

    Args:
        bundle: The bundle, with its digest, provenance and SBOM beside it.
        signer: What signs.

    Raises:
        UsageError: One of the files isn't there.
        ContractError: They aren't about this bundle, or break their contracts: that is not signed.
        SignatureError: It can't be signed.
        ServiceError: A signing service fails.
    """
    outputs = Outputs(bundle)
    sha256 = sha256_file(_there(bundle))
    if _there(outputs.digest).read_bytes() != digest_line(sha256, bundle.name):
        raise ContractError(
            f"{outputs.digest} isn't the digest of {bundle.name}, {sha256}.", hint="Build it again."
        )
    provenance = _there(outputs.provenance).read_bytes()
    what = f"The provenance {outputs.provenance.name}"
    sbom = _there(outputs.sbom).read_bytes()
    if is_task(bundle):
        told = read_task_provenance(provenance, what)
        told.statement.require_subject(bundle.name, sha256, what)
        check_task(outputs, read_artifact_bytes(str(bundle)), told, sbom)
    else:
        read_provenance(provenance, what).statement.require_subject(bundle.name, sha256, what)
    check_sbom(sbom)
    statement = sbom_statement(sbom, bundle.name, sha256)
    return {
        outputs.signature: signer.sign_artifact(bundle),
        outputs.provenance_signature: signer.sign_statement(provenance),
        outputs.sbom_signature: signer.sign_statement(statement),
    }


def sbom_statement(sbom: bytes, filename: str, sha256: str) -> bytes:
    """Return the in-toto statement whose predicate is an SBOM.

    Raises:
        ContractError: The SBOM isn't JSON.
    """
    try:
        predicate = loads_object(sbom)
    except JsonError as error:
        raise ContractError(f"The SBOM of {filename} can't be read: {error}.") from error
    return Statement(filename, sha256, SBOM_PREDICATE_TYPE, predicate).to_bytes()


def _there(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(
            f"There is no {path}.", hint="'capsule-build' writes it beside each bundle it builds."
        )
    return path
