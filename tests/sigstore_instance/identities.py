"""The OIDC provider: tokens, and the two ways to one (a CI's, a person's)."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

AUDIENCE = "sigstore"


class Provider:
    """Gives and checks tokens (OpenID Connect Core 1.0; RFC 7519).

    Attributes:
        issuer: What tokens name as their issuer.
        identity: Whom a token that nobody asked anything of is for.
    """

    def __init__(self, issuer: str, identity: str) -> None:
        self.issuer = issuer
        self.identity = identity
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._challenges: dict[str, str] = {}

    def token(self, *, seconds: float = 300, **changes: object) -> str:
        """A signed token; `changes` replaces claims."""
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": self.identity,
            "aud": AUDIENCE,
            "iat": min(now, int(now + seconds)),
            "exp": int(now + seconds),
        }
        return jwt.encode({**claims, **changes}, self._key, algorithm="ES256")

    def check(self, token: str) -> tuple[str, str]:
        """Return a token's subject and issuer, or raise `jwt.InvalidTokenError`."""
        claims = jwt.decode(
            token, self._key.public_key(), algorithms=["ES256"], audience=AUDIENCE, issuer=self.issuer
        )
        return claims["sub"], claims["iss"]

    def configuration(self, url: str) -> dict[str, object]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{url}/oidc/auth",
            "token_endpoint": f"{url}/oidc/token",
        }

    def authorize(self, path: str) -> str:
        """Where a browser is sent back to: with a code, for whoever asked with this challenge (RFC 7636)."""
        query = {key: values[0] for key, values in parse_qs(urlsplit(path).query).items()}
        code = f"code-{len(self._challenges)}"
        self._challenges[code] = query["code_challenge"]
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def redeem(self, body: bytes) -> dict[str, object]:
        """Give a token for a code."""
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        challenge = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert self._challenges.pop(form["code"]) == base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        return {"access_token": self.token(), "token_type": "Bearer"}
