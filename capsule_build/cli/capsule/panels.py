"""The groups in which the help of `capsule` lists its commands."""

from __future__ import annotations

from typing import Final

CAPSULES: Final = "Capsules: toolchains for any container"
MACHINE: Final = "This machine"
TASKS: Final = "Tasks: untrusted code in a sandbox"
