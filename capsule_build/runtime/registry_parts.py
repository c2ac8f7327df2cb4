"""What the entries of a registry lock have in common: how their fields are read, and what a file in it is."""

from __future__ import annotations

import re
from typing import Final, Protocol
from urllib.parse import urlsplit

from .errors import ContractError, InputError
from .rules import shown

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class RegistryError(ContractError):
    """A registry lock breaks its format. The message names the entry."""


class RevokedError(InputError):
    """What was asked for has been revoked. The message gives the reason."""


class File(Protocol):
    """A bundle of a registry lock, of whatever kind."""

    @property
    def filename(self) -> str:
        """Its name in a store."""

    @property
    def sha256(self) -> str:
        """Its digest, in lower-case hexadecimal."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Where it can be had from."""

    @property
    def revoked(self) -> str | None:
        """Why it must not be used any more."""


class Wanted(Protocol):
    """A bundle that somebody asked for by a name that the lock has."""

    @property
    def tag(self) -> str:
        """The name."""

    @property
    def platform(self) -> object:
        """What it is for."""

    @property
    def variant(self) -> File:
        """The bundle."""

    @property
    def build_command(self) -> str:
        """The command that builds it."""


def check_file(file: File, name: re.Pattern[str], place: str) -> None:
    """Check what the lock says of a bundle.

    Args:
        file: The bundle.
        name: What its file name must be like.
        place: The entry in the words of messages.

    Raises:
        RegistryError: A rule is broken.
    """
    if not name.fullmatch(file.filename):
        raise RegistryError(f"{place}: {file.filename!a} is not a bundle's plain file name.")
    check_digest(file.sha256, place)
    if file.size <= 0:
        raise RegistryError(f"{place}: a bundle can't have {file.size} bytes.")
    for url in file.urls:
        if not _is_plain_url(url):
            raise RegistryError(f"{place}: {url!a} is not an http or https URL without user and fragment.")
    if len(set(file.urls)) != len(file.urls):
        raise RegistryError(f"{place}: a URL is listed twice.")
    if file.revoked is not None and not (file.revoked.strip() and file.revoked.isprintable()):
        raise RegistryError(f"{place}: the reason for revoking it must be one line of text.")


def check_digest(text: str, place: str) -> None:
    """Check that a text is a SHA-256.

    Raises:
        RegistryError: It isn't.
    """
    if not _SHA256.fullmatch(text):
        raise RegistryError(f"{place}: {text!a} is not a SHA-256 in lower-case hexadecimal.")


def _is_plain_url(url: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and port != 0
        and "@" not in parts.netloc
        and "#" not in url
    )


def read_fields(
    value: object, where: str, keys: tuple[str, ...], *, optional: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return an object's fields: exactly `keys`, and of `optional` any."""
    fields = read_object(value, where)
    for key in keys:
        if key not in fields:
            raise RegistryError(f"The registry lock's '{where}' lacks '{key}'.")
    for key in fields:
        if key not in keys and key not in optional:
            raise RegistryError(
                f"The registry lock's '{where}' has the field '{shown(key)}', which doesn't exist."
            )
    return fields


def read_object(value: object, where: str) -> dict[str, object]:
    """Return a value that must be an object."""
    if not isinstance(value, dict):
        raise RegistryError(f"The registry lock's '{where}' is not an object.")
    return value


def read_text(value: object, where: str) -> str:
    """Return a value that must be a string."""
    if not isinstance(value, str):
        raise RegistryError(f"The registry lock's '{where}' is not a string.")
    return value


def read_texts(value: object, where: str) -> tuple[str, ...]:
    """Return a value that must be a list of strings."""
    if not isinstance(value, list):
        raise RegistryError(f"The registry lock's '{where}' is not a list.")
    return tuple(read_text(item, where) for item in value)


def read_number(value: object, where: str) -> int:
    """Return a value that must be a whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise RegistryError(f"The registry lock's '{where}' is not a whole number.")
    return value


def read_optional(value: object, where: str) -> str | None:
    """Return a value that must be a string or null."""
    return None if value is None else read_text(value, where)
