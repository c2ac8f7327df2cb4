"""Keyless signing: a key that lives for one run, a certificate for it from Fulcio, an entry in Rekor's log.

The signing itself is sigstore's. Here its clients get time limits, a timestamp that can't be had is an error,
and each signature is verified against the trusted root before it is handed out.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import requests
from sigstore._internal.fulcio import ExpiredCertificate
from sigstore._internal.fulcio.client import FulcioClientError
from sigstore._internal.rekor import RekorClientError
from sigstore._internal.timestamp import TimestampError
from sigstore.dsse import Statement
from sigstore.errors import Error as SigstoreError
from sigstore.hashes import Hashed
from sigstore.oidc import ExpiredIdentity
from sigstore.sign import SigningContext
from sigstore_models.common.v1 import HashAlgorithm

from ..runtime.errors import CapsuleError, SignatureError
from ..runtime.files import sha256_file
from .certificates import holder_of
from .identity import redacted
from .network import ServiceError, limit, require_safe, within
from .trust import verifier_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.x509 import Certificate, CertificateSigningRequest
    from rfc3161_client import TimeStampResponse
    from sigstore._internal.fulcio import FulcioCertificateSigningResponse, FulcioClient
    from sigstore._internal.rekor import EntryRequestBody
    from sigstore._internal.timestamp import TimestampAuthorityClient
    from sigstore.models import Bundle, ClientTrustConfig, TransparencyLogEntry
    from sigstore.oidc import IdentityToken
    from sigstore.sign import Signer

    from .identity import Tokens

T = TypeVar("T")

_LEFT: Final = datetime.timedelta(seconds=30)
"""How long a certificate must still be valid to be used once more."""
_REFUSED: Final = frozenset({400, 401, 403})


class KeylessSigner:
    """Signs in an identity's name (see `signer.Signer`).

    Args:
        config: The instance: its services, and its trusted root.
        tokens: Gives identity tokens.
        seconds: How long each step over the network may take.

    Raises:
        UsageError: There is no identity, or the instance isn't one to send a token to.
        ContractError: Its trusted root can't be used.
        SignatureError: The identity is refused.
        ServiceError: A service fails.
    """

    def __init__(self, config: ClientTrustConfig, tokens: Tokens, seconds: float) -> None:
        self._tokens = tokens
        self._verifier = verifier_of(config.trusted_root)
        services = config.signing_config
        self._context = SigningContext(
            fulcio=_Fulcio(services.get_fulcio(), seconds),  # type: ignore[arg-type]  # what is used of it
            rekor=_Rekor(services.get_tlogs()[0], seconds),  # type: ignore[arg-type]
            trusted_root=config.trusted_root,
            tsa_clients=[_Authority(client, seconds) for client in services.get_tsas()],  # type: ignore[misc]
        )
        self._accept = _Accept()
        self._until = datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self._token: IdentityToken | None = None
        self._signer = self._fresh()

    @property
    def identity(self) -> str:
        """The certificate's identity and issuer."""
        return self._accept.identity

    def sign_artifact(self, path: Path) -> bytes:
        """Sign a file's SHA-256."""
        hashed = Hashed(algorithm=HashAlgorithm.SHA2_256, digest=bytes.fromhex(sha256_file(path)))
        bundle = self._signed(lambda signer: signer.sign_artifact(hashed))
        self._checked(lambda: self._verifier.verify_artifact(hashed, bundle, self._accept))
        return bundle.to_json().encode() + b"\n"

    def sign_statement(self, data: bytes) -> bytes:
        """Sign an in-toto statement, exactly these bytes, in a DSSE envelope."""
        bundle = self._signed(lambda signer: signer.sign_dsse(Statement(data)))
        self._checked(lambda: self._verifier.verify_dsse(bundle, self._accept))
        return bundle.to_json().encode() + b"\n"

    def _fresh(self) -> Signer:
        """Return a signer with a certificate of its own."""
        token = self._token
        if token is None or not token.in_validity_period():
            token = self._token = self._tokens.token()
        with self._context.signer(token) as signer:
            certificate: Certificate = signer._signing_cert()  # noqa: SLF001 - it has no public name
        self._until = certificate.not_valid_after_utc
        self._accept.verify(certificate)
        return signer

    def _signed(self, sign: Callable[[Signer], Bundle]) -> Bundle:
        try:
            if datetime.datetime.now(datetime.UTC) + _LEFT > self._until:
                self._signer = self._fresh()
            return sign(self._signer)
        except (ExpiredCertificate, ExpiredIdentity):
            raise SignatureError(
                "The signing certificate or its identity token has expired.",
                hint="Get a new token and go on: what was finished stays.",
            ) from None
        except CapsuleError:
            raise
        except (SigstoreError, ValueError) as error:
            raise ServiceError(f"What the signing services gave can't be used: {_words(error)}") from error

    def _checked(self, verify: Callable[[], object]) -> None:
        try:
            verify()
        except (SigstoreError, ValueError) as error:
            raise ServiceError(
                f"The signature that was made doesn't hold against the instance's root: {_words(error)}",
                hint="The trust configuration's services and its trusted root must be of one instance.",
            ) from error


class _Accept:
    """Takes any identity, and remembers whose it is: what is verified is that the services told the truth."""

    def __init__(self) -> None:
        self.identity = ""

    def verify(self, cert: Certificate) -> None:
        self.identity = holder_of(cert)


class _Fulcio:
    """Asks for a certificate, with a time limit and sayings of its own."""

    def __init__(self, client: FulcioClient, seconds: float) -> None:
        require_safe(client.url, "Fulcio")
        limit(client.session, client.url, seconds)
        self._client = client
        self._seconds = seconds

    @property
    def signing_cert(self) -> _Fulcio:
        return self

    def post(
        self, request: CertificateSigningRequest, token: IdentityToken
    ) -> FulcioCertificateSigningResponse:
        what = f"Fulcio at {self._client.url}"
        try:
            return _step(what, self._seconds, lambda: self._client.signing_cert.post(request, token))
        except FulcioClientError as error:
            response = getattr(error.__cause__, "response", None)
            said = redacted(_said(response) or str(error) or "no certificate", str(token))
            if response is not None and response.status_code in _REFUSED:
                raise SignatureError(
                    f"{what} refused the identity ({response.status_code}): {said}",
                    hint="Is the token valid, for the audience 'sigstore', and from an issuer that it knows?",
                ) from None
            raise ServiceError(f"{what} gave no certificate: {said}") from None


class _Rekor:
    """Makes log entries, with a time limit."""

    def __init__(self, client: Any, seconds: float) -> None:
        require_safe(client.url, "Rekor")
        self._client = client
        self._seconds = seconds

    def create_entry(self, request: EntryRequestBody) -> TransparencyLogEntry:
        what = f"Rekor at {self._client.url}"

        def create() -> TransparencyLogEntry:
            # The session belongs to the thread.
            limit(self._client._session, self._client.url, self._seconds)  # noqa: SLF001
            entry: TransparencyLogEntry = self._client.create_entry(request)
            return entry

        try:
            return _step(what, self._seconds, create)
        except RekorClientError as error:
            raise ServiceError(f"{what} made no log entry: {_words(error)}") from error

    def _build_hashed_rekord_request(self, *parts: Any, **named: Any) -> EntryRequestBody:
        request: EntryRequestBody = self._client._build_hashed_rekord_request(*parts, **named)  # noqa: SLF001
        return request

    def _build_dsse_request(self, *parts: Any, **named: Any) -> EntryRequestBody:
        request: EntryRequestBody = self._client._build_dsse_request(*parts, **named)  # noqa: SLF001
        return request


class _Authority:
    """Asks for timestamps. sigstore goes on without one that it doesn't get; this doesn't."""

    def __init__(self, client: TimestampAuthorityClient, seconds: float) -> None:
        require_safe(client.url, "The timestamp authority")
        self.url = client.url
        self._client = client
        self._seconds = seconds

    def request_timestamp(self, signature: bytes) -> TimeStampResponse:
        what = f"The timestamp authority at {self.url}"

        def request() -> TimeStampResponse:
            limit(self._client._session, self.url, self._seconds)  # noqa: SLF001
            return self._client.request_timestamp(signature)

        try:
            return _step(what, self._seconds, request)
        except TimestampError as error:
            raise ServiceError(f"{what} gave no timestamp: {_words(error)}") from error


def _step(what: str, seconds: float, call: Callable[[], T]) -> T:
    """Do a step over the network; what isn't its client's own error is told as the service's."""
    try:
        return within(seconds, what, call)
    except requests.Timeout:
        raise ServiceError(f"{what} didn't answer within {seconds:g} s.") from None
    except requests.RequestException as error:
        if isinstance(error, ValueError):
            # What isn't JSON; an address that isn't one was found before.
            raise ServiceError(f"{what} gave an answer that isn't one: {_words(error)}") from None
        raise ServiceError(f"{what} can't be reached: {_words(error)}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServiceError(f"{what} gave an answer that isn't one: {_words(error)}") from None


def _said(response: requests.Response | None) -> str:
    """Return the message in an answer, where there is one."""
    if response is None:
        return ""
    try:
        message = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"
    return str(message)[:300]


def _words(error: Exception) -> str:
    return redacted(" ".join(str(error).split())[:300]) or type(error).__name__
