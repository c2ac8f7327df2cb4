"""Where identity tokens come from: a file, the environment, the CI, a person in front of a browser.

A token lets whoever has it sign in somebody's name while it is valid. It is never part of a message, and
never taken from the command line, which other users of a machine can read.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from sigstore.errors import Error as SigstoreError
from sigstore.errors import NetworkError
from sigstore.oidc import IdentityError, IdentityToken, Issuer, IssuerError, detect_credential

from ..runtime.errors import SignatureError, UsageError
from .network import ServiceError, require_safe, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sigstore.models import SigningConfig

TOKEN_VARIABLE: Final = "SIGSTORE_ID_TOKEN"  # noqa: S105 - the name of a variable; cosign has the same
_TOKEN: Final = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
_MAX_BYTES: Final = 1 << 16
_AUDIENCE: Final = "sigstore"


class Tokens:
    """Gives identity tokens, a new one each time where the source can.

    Args:
        file: A file that holds one; `-` is standard input.
        interactive: Whether a person may be sent to a browser.
        config: The instance's services: its OIDC provider is the one that a person is sent to.
        seconds: How long asking the CI may take.
        say: Hears what a person should know.
    """

    def __init__(
        self,
        *,
        file: Path | None,
        interactive: bool,
        config: SigningConfig,
        seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self._file = file
        self._interactive = interactive
        self._config = config
        self._seconds = seconds
        self._say = say
        self._given: str | None = None

    def token(self) -> IdentityToken:
        """Return a token that is valid now.

        Raises:
            UsageError: There is no source of tokens, or the file can't be read.
            SignatureError: The token isn't one, is for another audience, or has expired.
            ServiceError: The CI's or the provider's service fails.
        """
        given = self._from_file() if self._file else os.environ.get(TOKEN_VARIABLE)
        if given:
            source = str(self._file) if self._file else TOKEN_VARIABLE
            return _parsed(given.strip(), f"The identity token of {source}")
        try:
            ambient = within(self._seconds, "The CI's token service", detect_credential)
        except SigstoreError as error:
            raise ServiceError(
                f"The CI gives no identity token: {redacted(str(error))}",
                hint="In GitHub Actions the job needs the permission 'id-token: write'.",
            ) from None
        if ambient:
            return _parsed(ambient, "The CI's identity token")
        if self._interactive:
            return self._from_person()
        raise UsageError(
            "There is no identity to sign with: no CI that gives a token, and no terminal.",
            hint=f"Give a token with --identity-token FILE or {TOKEN_VARIABLE}, or sign with --key.",
        )

    def _from_file(self) -> str:
        if self._given is not None:
            return self._given
        path = self._file
        if path is None:
            raise ValueError("no file")
        if _TOKEN.fullmatch(str(path)):
            raise UsageError(
                "--identity-token was given a token itself: others on this machine can read it there.",
                hint="Write it to a file of mode 0600 and name that, or use '-' for standard input.",
            )
        try:
            if str(path) == "-":
                # It can be read once, and may be needed again.
                self._given = sys.stdin.read(_MAX_BYTES)
                return self._given
            with path.open("rb") as stream:
                return stream.read(_MAX_BYTES).decode("ascii", "replace")
        except OSError as error:
            raise UsageError(f"The identity token {path} can't be read: {error.strerror}.") from error

    def _from_person(self) -> IdentityToken:
        try:
            url = self._config.get_oidc_url()
        except SigstoreError as error:
            raise UsageError(
                "The trust configuration names no OIDC provider to sign in with.",
                hint="Give a token with --identity-token.",
            ) from error
        require_safe(url, "The OIDC provider")
        self._say(f"Signing in with {url}.")
        try:
            return Issuer(url).identity_token()
        except NetworkError:
            raise ServiceError(f"The OIDC provider {url} can't be reached.") from None
        except (IssuerError, IdentityError) as error:
            raise SignatureError(f"Signing in with {url} failed: {redacted(str(error))}") from None


def redacted(text: str, *secrets: str) -> str:
    """Return text without tokens: those that are named, and everything that looks like one."""
    for secret in secrets:
        text = text.replace(secret, "[token]")
    return _TOKEN.sub("[token]", text)


def _parsed(raw: str, what: str) -> IdentityToken:
    try:
        return IdentityToken(raw)
    except IdentityError as error:
        # The reason is the cause's: what sigstore says is the same for every one.
        reason = redacted(str(error.__cause__ or error), raw) or type(error.__cause__).__name__
        raise SignatureError(
            f"{what} can't be used: {reason}.",
            hint=f"It must be valid now, and for the audience '{_AUDIENCE}'. Get a new one, and go on.",
        ) from None
