"""Whose packed files are run: what `capsule.toml`, a request or the command line asks for.

The words are read here. What they mean is the release chain's: it is loaded where a signature is asked for,
and only then, since that takes longer than most tasks.
"""

from __future__ import annotations

import os

from ..runtime.errors import SignatureError, UsageError
from .options import ConfigError
from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

_PATHS: Final = ("public_key", "trust_root")
_TEXTS: Final = ("identity", "issuer", "public_key", "trust_root", "builder")
_SAME_GUEST: Final = "same_guest"


class Trust(Record):
    """Whose signature must be on a packed file, in the words of `capsule-build verify`.

    Attributes:
        identity: Who must have signed.
        issuer: The OIDC issuer that must have vouched for that.
        public_key: The key that must have signed, in another's place.
        trust_root: Whose certificates and logs count.
        builder: The builder that the provenance must name.
        same_guest: Whether a file that was packed for another guest than this installation's is refused.
    """

    identity: str | None = None
    issuer: str | None = None
    public_key: str | None = None
    trust_root: str | None = None
    builder: str | None = None
    same_guest: bool = False

    @property
    def asks_for_signature(self) -> bool:
        """Whether a signature is asked for at all."""
        return any(value is not None for value in self[:-1])

    def require_signature(self, path: str, data: bytes, where: str) -> None:
        """Verify a packed file, where that is asked for. Nothing of it is decoded before its signature holds.

        Args:
            path: Where it was read from: its signatures lie beside it.
            data: Its bytes.
            where: What asks for it, as an error says it.

        Raises:
            SignatureError: A signature, an identity or a statement doesn't hold, or isn't there.
            ContractError: The file, or what lies beside it, breaks its format.
            UsageError: A key or a trusted root can't be read.
        """
        if self.asks_for_signature:
            from pathlib import Path

            from ..release.outputs import Outputs
            from ..release.task_verification import verify_task

            signature = Outputs(Path(path)).signature
            if not os.path.exists(signature):
                key = "" if self.public_key is None else " --key KEY.pem"
                raise SignatureError(
                    f"The signature {signature.name} isn't there.",
                    hint=f"{where} asks for it; 'capsule-build sign {path}{key}' makes it.",
                )
            verify_task(Path(path), data, self._policy())

    def _policy(self) -> Any:
        from pathlib import Path

        from ..release.policy import make_policy

        key, root = (None if name is None else Path(name) for name in (self.public_key, self.trust_root))
        return make_policy(self.identity, self.issuer, key, root, self.builder)


def read_trust(words: Mapping[str, Any], folder: str, where: str) -> Trust:
    """Read what is asked for.

    Args:
        words: The fields of `Trust`.
        folder: What paths are relative to.
        where: The place that an error names.

    Raises:
        ConfigError: There is no word, one is unknown or isn't what it must be, or they don't go together.
    """
    if not words:
        raise ConfigError(f"{where}: nothing is asked for.", hint=f"Keys: {', '.join(Trust._fields)}.")
    values: dict[str, Any] = {}
    for name, value in words.items():
        if name == _SAME_GUEST:
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: {name} must be true or false.")
        elif name not in _TEXTS:
            raise ConfigError(f"{where}: there is no key '{name}'. Keys: {', '.join(Trust._fields)}.")
        elif not isinstance(value, str) or not value:
            raise ConfigError(f"{where}: {name} must be a text.")
        values[name] = os.path.join(folder, value) if name in _PATHS else value
    trust = Trust(**values)
    if trust.asks_for_signature:
        try:
            trust._policy()  # noqa: SLF001 (its own module)
        except UsageError as error:
            raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    return trust
