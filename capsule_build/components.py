"""Components: what a capsule is made of, and where new versions of each part are looked for.

They are data, in `components.toml` of a recipe folder. The pins say which file of a component is taken; this
says where the next one would come from.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from .runtime.errors import ContractError, UsageError
from .runtime.platforms import ARCHITECTURES, LIBCS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .runtime.platforms import Platform

KINDS: Final = ("pypi", "debian", "npm", "github-release")
"""The origins that an input can come from."""

TARGETS: Final = (*(f"{a}-{c}" for a in ARCHITECTURES for c in LIBCS), *ARCHITECTURES, "any")
"""What a pin can be for: an architecture with a C library, an architecture, or everything."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_REQUIRED: Final = frozenset({"title", "kind", "package", "track", "license", "targets"})
_OPTIONAL: Final = frozenset({"version", "files", "source", "supplier"})


@dataclass(frozen=True)
class Component:
    """One part of a capsule, or a tool that its build needs.

    Attributes:
        name: What recipes and pins call it.
        title: What people call it.
        kind: One of `KINDS`.
        package: The package's name at its origin; `owner/repository` for a GitHub release.
        license: An SPDX licence expression.
        track: Which version is wanted: a PEP 440 specifier (pypi, npm), a suite (debian), a tag
            (github-release).
        targets: For each target (see `TARGETS`) what selects its file: a wheel's platform tag or "any"
            (pypi), dpkg's architecture (debian), a file name in which `{version}` and `{tag}` are replaced
            (github-release), nothing (npm).
        version: The version in a GitHub release, whose tag need not say it; elsewhere empty.
        files: The files and folders in a bundle that are its own: patterns, in which `*` stands for a part of
            one name.
        source: The package URL of its source, in which `{version}` is replaced; empty: its files say it, or
            its licence doesn't ask for it.
        supplier: Who supplies it; may be empty.
    """

    name: str
    title: str
    kind: str
    package: str
    license: str
    track: str
    targets: Mapping[str, str]
    version: str = ""
    files: tuple[str, ...] = ()
    source: str = ""
    supplier: str = ""

    def target_for(self, platform: Platform) -> str:
        """Return the most specific target that serves a platform.

        Raises:
            UsageError: There is none.
        """
        for target in targets_of(platform):
            if target in self.targets:
                return target
        raise UsageError(
            f"The component '{self.name}' has no target for {platform}; it has "
            f"{', '.join(sorted(self.targets))}."
        )

    def selector(self, target: str) -> str:
        """Return what selects the file for `target`.

        Raises:
            UsageError: The component has no such target.
        """
        try:
            return self.targets[target]
        except KeyError:
            known = ", ".join(sorted(self.targets))
            raise UsageError(
                f"The component '{self.name}' has no target '{target}'; it has {known}."
            ) from None


def targets_of(platform: Platform) -> tuple[str, ...]:
    """Return the targets that serve a platform, the most specific first."""
    return (f"{platform.architecture}-{platform.libc}", platform.architecture, "any")


def load_components(path: Path) -> dict[str, Component]:
    """Read `components.toml`.

    Returns:
        The components by name, in the file's order.

    Raises:
        UsageError: The file isn't there, or can't be read.
        ContractError: It isn't TOML, or a component in it is not well-formed; the message names it.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(
            f"The list of components can't be read: {path}: {error.strerror}.",
            hint="A folder of recipes holds components.toml and pins.lock.json.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContractError(f"{path} is not valid TOML: {error}.") from error
    return {name: _component(path, name, entry) for name, entry in data.items()}


def _component(path: Path, name: str, entry: Any) -> Component:
    def wrong(what: str) -> ContractError:
        return ContractError(f"{path}: the component '{name}' {what}.")

    if not _NAME.fullmatch(name):
        raise wrong("has a name other than lower-case letters, digits, '.', '+' and '-'")
    if not isinstance(entry, dict):
        raise wrong("is not a table")
    if missing := _REQUIRED - entry.keys():
        raise wrong(f"lacks {', '.join(sorted(missing))}")
    if unknown := entry.keys() - _REQUIRED - _OPTIONAL:
        raise wrong(f"has an unknown key: {', '.join(sorted(unknown))}")
    targets = entry["targets"]
    if not isinstance(targets, dict) or not targets:
        raise wrong("has no targets")
    for key, value in [*entry.items(), *targets.items()]:
        if key not in {"targets", "files"} and not isinstance(value, str):
            raise wrong(f"has a value for '{key}' that is not text")
    for key in sorted(_REQUIRED - {"targets"}):
        if not entry[key].strip():
            raise wrong(f"has an empty '{key}'")
    if strange := targets.keys() - set(TARGETS):
        raise wrong(f"has an unknown target: {', '.join(sorted(strange))} (known: {', '.join(TARGETS)})")
    files = entry.get("files", [])
    if not isinstance(files, list) or not all(isinstance(pattern, str) and pattern for pattern in files):
        raise wrong("has 'files' that are not a list of patterns")
    kind = entry["kind"]
    if kind not in KINDS:
        raise wrong(f"has an unknown kind '{kind}' (known: {', '.join(KINDS)})")
    if kind in {"pypi", "npm"}:
        try:
            SpecifierSet(entry["track"])
        except InvalidSpecifier:
            raise wrong(
                f"tracks '{entry['track']}', which is not a version specifier such as ==24.*"
            ) from None
    if (kind == "github-release") != bool(entry.get("version")):
        raise wrong("must have a 'version' if, and only if, it comes from a GitHub release")
    return Component(
        name=name,
        title=entry["title"],
        kind=kind,
        package=entry["package"],
        license=entry["license"],
        track=entry["track"],
        targets=dict(targets),
        version=entry.get("version", ""),
        files=tuple(files),
        source=entry.get("source", ""),
        supplier=entry.get("supplier", ""),
    )
