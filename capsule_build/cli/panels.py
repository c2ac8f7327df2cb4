"""The groups in which the help of `capsule-build` lists its commands."""

from __future__ import annotations

from typing import Final

BUILD: Final = "Build a capsule"
BUNDLES: Final = "Look into bundles"
RELEASE: Final = "Release"
INPUTS: Final = "Inputs"
MACHINE: Final = "This machine"
