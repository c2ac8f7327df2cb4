"""Where bundles can be had from: addresses made of a base and a bundle's file name, and of nothing else."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import quote, urlsplit

from ..runtime.errors import UsageError

_SECURE: Final = "https"
_LOOPBACK_NAME: Final = "localhost"


def parse_base_url(text: str) -> str:
    """Return the base of addresses, without a slash at its end.

    Raises:
        UsageError: It isn't https, or http on this machine itself; or it has more than a host and a path.
    """
    why = _problem(text)
    if why is not None:
        raise UsageError(
            f"--base-url {text!a} {why}.",
            hint="It reads https://HOST/PATH; a bundle's file name is put behind it.",
        )
    return text.rstrip("/")


def url_of(base: str, filename: str) -> str:
    """Return a bundle's address below a base that `parse_base_url` gave."""
    return f"{base}/{quote(filename)}"


def is_of(url: str, filename: str) -> bool:
    """Return whether an address can have been made by `url_of` for a file."""
    base, _, name = url.rpartition("/")
    return name == quote(filename) and _problem(base) is None


def _problem(text: str) -> str | None:
    """Return what is wrong with a base, in words that follow its name; `None`: nothing is."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return "has a character that no URL has"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "is no URL"
    if parts.scheme not in {"http", _SECURE} or not parts.hostname or port == 0:
        return "is no http or https URL"
    if "@" in parts.netloc:
        return "names a user"
    if "?" in text or "#" in text:
        return "has a query or a fragment"
    if parts.scheme != _SECURE and not _is_loopback(parts.hostname):
        return "is neither https nor on this machine itself"
    return None


def _is_loopback(host: str) -> bool:
    if host == _LOOPBACK_NAME:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
