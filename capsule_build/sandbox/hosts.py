"""Which hosts a task may reach: by name, and again by the addresses that a name has."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_address(host: str) -> Address | None:
    """Return the address that a host is, or `None` for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


def name_allowed(host: str, patterns: Sequence[str]) -> bool:
    """Say whether the list allows a host by its name, or by its address where it is written as one.

    Args:
        host: In lower case, without brackets and final dot.
        patterns: `*`: every name, and every public address; `*.x.com`: each subdomain of x.com, not x.com
            itself;
            `x.com`: that and its subdomains; an address: exactly that.
    """
    address = parse_address(host)
    for pattern in patterns:
        if pattern == "*":
            if address is None or is_public(address):
                return True
        elif address is not None:
            if parse_address(pattern) == address:
                return True
        elif pattern.startswith("*."):
            if host.endswith(pattern[1:]) and len(host) > len(pattern) - 1:
                return True
        elif host == pattern or (host.endswith("." + pattern) and parse_address(pattern) is None):
            return True
    return False


def address_allowed(host: str, address: str, patterns: Sequence[str]) -> bool:
    """Say whether a request to a host may go to an address that the host has.

    A public address may be reached under any allowed name. Another one (loopback, link-local, private,
    shared, reserved) only where the list names that very address, or, for a loopback address, `localhost`
    when that is the name that was asked for: a name that somebody else controls must not lead into this
    machine or its network.
    """
    parsed = parse_address(address)
    if parsed is None:
        return False
    if is_public(parsed):
        return True
    if any(parse_address(pattern) == parsed for pattern in patterns):
        return True
    return host == "localhost" and "localhost" in patterns and parsed.is_loopback


def is_public(address: Address) -> bool:
    """Say whether an address belongs to the public internet, also by the IPv4 address that it wraps."""
    inner: Address | None = None
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address.teredo is not None:
            inner = address.teredo[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if inner is not None and not is_public(inner):
        return False
    return (inner is not None or address.is_global) and not address.is_multicast
