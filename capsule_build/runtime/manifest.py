"""The manifest of a bundle, `agentcompass-capsule.json`: the format `agentcompass.capsule.v1`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .errors import ContractError, UsageError
from .names import check_name
from .platforms import Platform
from .rules import BundleError, shown
from .strict_json import JsonError, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE_NAME: Final = "agentcompass-capsule.json"
"""The manifest's name at the bundle's root."""

SCHEMA: Final = "agentcompass.capsule.v1"

INSTALL_PARENT: Final = "/tmp/agentcompass-capsules"  # noqa: S108 (the contract fixes it: paths are built in)
"""The folder that holds every install root."""

_ID = re.compile(r"[a-z][a-z0-9.]*(-[a-z][a-z0-9.]*)*")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.]*(-[0-9A-Za-z.]+)*")
_TOOL = re.compile(r"[a-z0-9][a-z0-9._-]*")
_MAX_WORD = 64

_NODE_TOOLS: Final = ("node", "npm", "npx")
_PYTHON_TOOLS: Final = ("python", "python3", "pip")
_UV_TOOLS: Final = ("uv", "uvx")
_SEALER: Final = "seal-tree"

_FAMILY = re.compile(r"(?:python(?P<python>3\.[0-9]+))?(?P<both>-(?=node)|)(?:node(?P<node>[1-9][0-9]*))?")


class ManifestError(ContractError):
    """A manifest breaks its format. The message names the field."""


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself.

    Attributes:
        runtime_id: The recipe's id, such as `python3.12-node24`.
        runtime_version: The runtime's version; a composite's is `<python>-<node>`.
        platform: What it is built for.
        install_root: The one absolute path at which it works.
        launcher: The set-up launcher's path below the install root.
        tools: Each command's path below the install root.
    """

    runtime_id: str
    runtime_version: str
    platform: Platform
    install_root: str
    launcher: str
    tools: Mapping[str, str]

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read a manifest and check all of its rules.

        Raises:
            ManifestError: It breaks one; the message names the field.
        """
        try:
            document = loads(data)
        except JsonError as error:
            raise ManifestError(f"The manifest can't be read: {error}.") from error
        fields = _fields(
            document, "", ("schema_version", "runtime", "platform", "install_root", "launcher", "tools")
        )
        if fields["schema_version"] != SCHEMA:
            raise ManifestError(
                f"The manifest's 'schema_version' is {_show(fields['schema_version'])}, not '{SCHEMA}'."
            )
        runtime = _fields(fields["runtime"], "runtime", ("id", "version"))
        platform = _fields(fields["platform"], "platform", ("os", "architecture", "libc"))
        tools = fields["tools"]
        if not isinstance(tools, dict):
            raise ManifestError("The manifest's 'tools' is not an object.")
        try:
            target = Platform(
                architecture=_text(platform["architecture"], "platform.architecture"),
                libc=_text(platform["libc"], "platform.libc"),
                os=_text(platform["os"], "platform.os"),
            )
        except UsageError as error:
            raise ManifestError(f"The manifest's 'platform' is wrong: {shown(error.message)}") from error
        manifest = cls(
            runtime_id=_text(runtime["id"], "runtime.id"),
            runtime_version=_text(runtime["version"], "runtime.version"),
            platform=target,
            install_root=_text(fields["install_root"], "install_root"),
            launcher=_text(fields["launcher"], "launcher"),
            tools={name: _text(path, f"tools.{name}") for name, path in tools.items()},
        )
        manifest.check()
        return manifest

    def check(self) -> None:
        """Check the rules between and within the fields.

        Raises:
            ManifestError: One is broken; the message names the field.
        """
        check_runtime(self.runtime_id, self.runtime_version, self.tools)
        expected = install_root(self.runtime_id, self.runtime_version, self.platform)
        if self.install_root != expected:
            raise ManifestError(
                f"The manifest's 'install_root' is {_show(self.install_root)}; this runtime has '{expected}'."
            )
        _check_path(self.launcher, "launcher")
        for name, path in self.tools.items():
            _check_path(path, f"tools.{name}")

    def to_bytes(self) -> bytes:
        """Return the manifest's one spelling: indented, tools sorted by name, a newline at the end."""
        document = {
            "schema_version": SCHEMA,
            "runtime": {"id": self.runtime_id, "version": self.runtime_version},
            "platform": {
                "os": self.platform.os,
                "architecture": self.platform.architecture,
                "libc": self.platform.libc,
            },
            "install_root": self.install_root,
            "launcher": self.launcher,
            "tools": dict(sorted(self.tools.items())),
        }
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def install_root(runtime_id: str, runtime_version: str, platform: Platform) -> str:
    """Return the one path at which a runtime of a platform works."""
    return f"{INSTALL_PARENT}/{runtime_id}-{runtime_version}-{platform}"


def check_runtime(runtime_id: str, runtime_version: str, tools: Iterable[str]) -> None:
    """Check a runtime's id, its version and the names of its tools, alone and against each other.

    The tools of `node<major>`, `python3.<minor>` and their composite are known; of other ids the sealer is.

    Raises:
        ManifestError: One of them is wrong; the message names it.
    """
    if len(runtime_id) > _MAX_WORD or not _ID.fullmatch(runtime_id):
        raise ManifestError(f"'runtime.id' is {_show(runtime_id)}, which is not the id of a runtime.")
    if len(runtime_version) > _MAX_WORD or not _VERSION.fullmatch(runtime_version):
        raise ManifestError(f"'runtime.version' is {_show(runtime_version)}, which is not a version.")
    names = set(tools)
    for name in sorted(names):
        if len(name) > _MAX_WORD or not _TOOL.fullmatch(name):
            raise ManifestError(f"'tools' has the name {_show(name)}, which is not a command's name.")
    if _SEALER not in names:
        raise ManifestError(f"'tools' lacks '{_SEALER}', which every runtime has.")
    family = _FAMILY.fullmatch(runtime_id)
    if family is None or bool(family["both"]) != bool(family["python"] and family["node"]):
        return
    versions = [
        rf"{re.escape(part)}{rest}"
        for part, rest in ((family["python"], r"\.[0-9]+"), (family["node"], r"\.[0-9]+\.[0-9]+"))
        if part
    ]
    uv = r"(-uv[0-9]+\.[0-9]+\.[0-9]+)?" if family["both"] else ""
    if not re.fullmatch("-".join(versions) + uv, runtime_version):
        raise ManifestError(
            f"'runtime.version' is '{runtime_version}', which is no version of '{runtime_id}'."
        )
    expected = {
        _SEALER,
        *(_PYTHON_TOOLS if family["python"] else ()),
        *(_NODE_TOOLS if family["node"] else ()),
        *(_UV_TOOLS if family["both"] else ()),
    }
    if names != expected:
        raise ManifestError(
            f"'tools' of '{runtime_id}' are {', '.join(sorted(expected))}; here "
            + " and ".join(
                f"{', '.join(sorted(some))} {verb}"
                for some, verb in ((expected - names, "is missing"), (names - expected, "is too much"))
                if some
            )
            + "."
        )


def _fields(value: object, where: str, keys: tuple[str, ...]) -> dict[str, object]:
    """Return an object's fields: exactly `keys`."""
    subject = f"The manifest's '{where}'" if where else "The manifest"
    if not isinstance(value, dict):
        raise ManifestError(f"{subject} is not an object.")
    prefix = f"{where}." if where else ""
    for key in keys:
        if key not in value:
            raise ManifestError(f"The manifest lacks '{prefix}{key}'.")
    for key in value:
        if key not in keys:
            raise ManifestError(f"The manifest has the field {_show(prefix + key)}, which doesn't exist.")
    return value


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise ManifestError(f"The manifest's {_show(field)} is not a string.")
    return value


def _check_path(path: str, field: str) -> None:
    try:
        check_name(path)
    except BundleError as error:
        raise ManifestError(
            f"The manifest's '{field}' is {_show(path)}, which is not a plain path below the install root "
            f"(rule '{error.rule.value}')."
        ) from error


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
