"""The thin runtime module: puts capsules into environments.

It needs the standard library only, and nothing else of the project: a framework can vendor this folder.
`README.md` beside this file is its one page.

Names are loaded when they are first used: importing this module takes next to no time.
"""

from __future__ import annotations

# As `typing` has it, which takes longer to import than all of this file.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from .archive import BundleInfo, check_bundle
    from .containers import DockerContainer, PodmanContainer
    from .diagnosis import SetUpError
    from .download import Downloader
    from .environment import Environment, ShellEnvironment
    from .environments import open_environment
    from .errors import (
        CapsuleError,
        ContractError,
        DigestError,
        EngineError,
        InputError,
        SignatureError,
        TargetError,
        UsageError,
    )
    from .harness import Harness, Strategy, load_harness, parse_harness
    from .installing import Installed, install, installed, uninstall
    from .local import LocalEnvironment
    from .manifest import Manifest
    from .platforms import Platform
    from .probing import probe
    from .process import CommandError, ProgramMissingError, Result
    from .registry import Registry, Resolved, RevokedError, Variant, load_registry
    from .rules import BundleError, Rule
    from .sealing import SealReport, seal
    from .setup import SetUp, set_up
    from .store import Store
    from .target import Target
    from .verifying import DifferenceError, verify
    from .why import Explanation, explain

_HOMES = {
    "archive": ("BundleInfo", "check_bundle"),
    "containers": ("DockerContainer", "PodmanContainer"),
    "diagnosis": ("SetUpError",),
    "download": ("Downloader",),
    "environment": ("Environment", "ShellEnvironment"),
    "environments": ("open_environment",),
    "errors": (
        *("CapsuleError", "ContractError", "DigestError", "EngineError"),
        *("InputError", "SignatureError", "TargetError", "UsageError"),
    ),
    "harness": ("Harness", "Strategy", "load_harness", "parse_harness"),
    "installing": ("Installed", "install", "installed", "uninstall"),
    "local": ("LocalEnvironment",),
    "manifest": ("Manifest",),
    "platforms": ("Platform",),
    "probing": ("probe",),
    "target": ("Target",),
    "process": ("CommandError", "ProgramMissingError", "Result"),
    "registry": ("Registry", "Resolved", "RevokedError", "Variant", "load_registry"),
    "rules": ("BundleError", "Rule"),
    "sealing": ("SealReport", "seal"),
    "setup": ("SetUp", "set_up"),
    "store": ("Store",),
    "verifying": ("DifferenceError", "verify"),
    "why": ("Explanation", "explain"),
}

__all__ = [
    "BundleError",
    "BundleInfo",
    "CapsuleError",
    "CommandError",
    "ContractError",
    "DifferenceError",
    "DigestError",
    "DockerContainer",
    "Downloader",
    "EngineError",
    "Environment",
    "Explanation",
    "Harness",
    "InputError",
    "Installed",
    "LocalEnvironment",
    "Manifest",
    "Platform",
    "PodmanContainer",
    "ProgramMissingError",
    "Registry",
    "Resolved",
    "Result",
    "RevokedError",
    "Rule",
    "SealReport",
    "SetUp",
    "SetUpError",
    "ShellEnvironment",
    "SignatureError",
    "Store",
    "Strategy",
    "Target",
    "TargetError",
    "UsageError",
    "Variant",
    "check_bundle",
    "explain",
    "install",
    "installed",
    "load_harness",
    "load_registry",
    "open_environment",
    "parse_harness",
    "probe",
    "seal",
    "set_up",
    "uninstall",
    "verify",
]


def __getattr__(name: str) -> object:
    import importlib  # noqa: PLC0415

    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(importlib.import_module(f".{home}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
