"""Builds and releases runtime capsules: toolchain closures that run in any Linux image."""

__version__ = "0.1.0"
