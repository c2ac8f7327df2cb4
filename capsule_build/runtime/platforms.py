"""Platforms: `linux-<architecture>-<libc>`, as they stand in file names, manifests and the registry lock."""

from __future__ import annotations

import platform as host
from dataclasses import dataclass
from typing import Final

from .errors import UsageError

ARCHITECTURES: Final = ("x86_64", "aarch64")
LIBCS: Final = ("glibc", "musl")
_ALIASES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, order=True)
class Platform:
    """A kind of Linux: its architecture and its C library."""

    architecture: str
    libc: str
    os: str = "linux"

    def __post_init__(self) -> None:
        if self.os != "linux":
            raise UsageError(
                f"'{self.os}' is not an operating system that capsules are made for: only linux is."
            )
        if self.architecture not in ARCHITECTURES:
            raise UsageError(
                f"'{self.architecture}' is not an architecture that capsules are made for: "
                f"{' or '.join(ARCHITECTURES)}."
            )
        if self.libc not in LIBCS:
            raise UsageError(
                f"'{self.libc}' is not a C library that capsules are made for: {' or '.join(LIBCS)}."
            )

    def __str__(self) -> str:
        return f"{self.os}-{self.architecture}-{self.libc}"

    @classmethod
    def parse(cls, text: str) -> Platform:
        """Read `linux-<architecture>-<libc>`.

        Raises:
            UsageError: It isn't of that form, or names what capsules aren't made for.
        """
        parts = text.split("-")
        if len(parts) != 3:
            raise UsageError(f"'{text}' is not a platform.", hint="A platform reads linux-x86_64-glibc.")
        return cls(architecture=parts[1], libc=parts[2], os=parts[0])


def host_architecture() -> str:
    """Return this machine's architecture in the words of `ARCHITECTURES`, or as the kernel says it."""
    machine = host.machine().lower()
    return _ALIASES.get(machine, machine)
