"""The registry lock, `registry.lock.json`: which file a tag stands for on which platform.

A consumer names a tag and nothing else; the lock says which file, with which digest, that is. The format is
`agentcompass.capsule-registry.v1`, an object of `capsules` by tag, each with its `variants` by platform.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from .errors import ContractError, InputError, UsageError
from .manifest import ManifestError, check_runtime, install_root
from .platforms import Platform
from .rules import shown
from .strict_json import JsonError, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

REGISTRY_SCHEMA: Final = "agentcompass.capsule-registry.v1"

MAX_REGISTRY_BYTES: Final = 16 << 20
"""Bytes of a registry lock: some thousand times what one of a few dozen capsules has."""

_TAG = re.compile(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*-v[1-9][0-9]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}\.tar\.gz")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RegistryError(ContractError):
    """A registry lock breaks its format. The message names the entry."""


class RevokedError(InputError):
    """The variant that was asked for has been revoked. The message gives the reason."""


@dataclass(frozen=True)
class Variant:
    """One bundle.

    Attributes:
        filename: Its name in a store; each variant has its own.
        sha256: Its digest, in lower-case hexadecimal.
        size: Its size in bytes.
        install_root: The one path at which it works.
        urls: Where it can be had from; none: it must be in the store already.
        revoked: Why it must not be used any more; `None` when it may be.
    """

    filename: str
    sha256: str
    size: int
    install_root: str
    urls: tuple[str, ...] = ()
    revoked: str | None = None


@dataclass(frozen=True)
class Capsule:
    """What a tag stands for: a runtime, its tools, and a variant for each platform."""

    runtime_id: str
    runtime_version: str
    tools: tuple[str, ...]
    variants: Mapping[Platform, Variant]


@dataclass(frozen=True)
class Resolved:
    """The answer to a tag and a platform."""

    tag: str
    platform: Platform
    capsule: Capsule
    variant: Variant


@dataclass(frozen=True)
class Registry:
    """All capsules of a registry lock, by tag."""

    capsules: Mapping[str, Capsule]

    @classmethod
    def from_bytes(cls, data: bytes) -> Registry:
        """Read a registry lock and check all of its rules.

        Raises:
            RegistryError: It breaks one; the message names the entry.
        """
        try:
            document = loads(data)
        except JsonError as error:
            raise RegistryError(f"The registry lock can't be read: {error}.") from error
        fields = _fields(document, "registry", ("schema_version", "capsules"))
        if fields["schema_version"] != REGISTRY_SCHEMA:
            raise RegistryError(
                f"The registry lock's 'schema_version' is {fields['schema_version']!a}, "
                f"not '{REGISTRY_SCHEMA}'."
            )
        capsules = _object(fields["capsules"], "capsules")
        for tag in capsules:
            _check_key(tag)
        registry = cls({tag: _capsule(tag, value) for tag, value in capsules.items()})
        registry.check()
        return registry

    def check(self) -> None:
        """Check the rules within and between the entries.

        Raises:
            RegistryError: One is broken; the message names the entry.
        """
        seen: dict[str, str] = {}
        for tag, capsule in self.capsules.items():
            _check_key(tag)
            try:
                check_runtime(capsule.runtime_id, capsule.runtime_version, capsule.tools)
            except ManifestError as error:
                raise RegistryError(f"{tag}: {error.message}") from error
            if len(set(capsule.tools)) != len(capsule.tools):
                raise RegistryError(f"{tag}: a tool is listed twice.")
            for platform, variant in capsule.variants.items():
                place = f"{tag} for {platform}"
                _check_variant(capsule, platform, variant, place)
                other = seen.setdefault(variant.filename.lower(), place)
                if other != place:
                    raise RegistryError(f"{place} has the file name '{variant.filename}', as has {other}.")

    def to_bytes(self) -> bytes:
        """Return the lock's one spelling: sorted keys, indented by 2, a newline at the end."""
        document = {
            "schema_version": REGISTRY_SCHEMA,
            "capsules": {
                tag: {
                    "runtime": {"id": capsule.runtime_id, "version": capsule.runtime_version},
                    "tools": sorted(capsule.tools),
                    "variants": {
                        str(platform): {
                            "filename": variant.filename,
                            "sha256": variant.sha256,
                            "size": variant.size,
                            "install_root": variant.install_root,
                            "urls": list(variant.urls),
                            "revoked": variant.revoked,
                        }
                        for platform, variant in capsule.variants.items()
                    },
                }
                for tag, capsule in self.capsules.items()
            },
        }
        return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()

    def capsule(self, tag: str) -> Capsule:
        """Return what a tag stands for, on whatever platform.

        Raises:
            UsageError: What was given isn't a tag, or there is no such tag.
        """
        check_tag(tag, self.capsules)
        capsule = self.capsules.get(tag)
        if capsule is None:
            raise UsageError(f"There is no capsule '{tag}'.", hint=_tags(self.capsules))
        return capsule

    def resolve(self, tag: str, platform: Platform) -> Resolved:
        """Return the bundle that a tag stands for on a platform.

        Raises:
            UsageError: What was given isn't a tag, or there is no such tag, or not for this platform.
            RevokedError: The bundle has been revoked.
        """
        capsule = self.capsule(tag)
        variant = capsule.variants.get(platform)
        if variant is None:
            raise UsageError(
                f"There is no capsule '{tag}' for {platform}.",
                hint=f"The registry lock has it for: {_listed(map(str, capsule.variants))}.",
            )
        if variant.revoked is not None:
            raise RevokedError(
                f"The capsule '{tag}' for {platform} has been revoked: {variant.revoked}",
                hint="Take a newer tag, or a newer registry lock.",
            )
        return Resolved(tag, platform, capsule, variant)


def load_registry(path: Path) -> Registry:
    """Read a registry lock from a file.

    Raises:
        UsageError: The file can't be read.
        RegistryError: It breaks its format.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_REGISTRY_BYTES + 1)
    except OSError as error:
        raise UsageError(f"The registry lock '{path}' can't be read: {error.strerror}.") from error
    if len(data) > MAX_REGISTRY_BYTES:
        raise RegistryError(f"{path} is larger than a registry lock can be ({MAX_REGISTRY_BYTES} bytes).")
    try:
        return Registry.from_bytes(data)
    except RegistryError as error:
        raise RegistryError(f"{path}: {error.message}", hint=error.hint) from error


def check_tag(text: str, known: Iterable[str] | None = None) -> None:
    """Check that a text is a tag's name, and not some other way to say where a bundle is.

    Args:
        text: What was given.
        known: The tags that there are, for the error's hint; `None`: the caller has no registry lock.

    Raises:
        UsageError: It isn't; the message says what it looks like.
    """
    if _TAG.fullmatch(text):
        return
    if "://" in text:
        what = "a URL"
    elif text.startswith(("/", ".", "~")) or "\\" in text or text.endswith((".gz", ".tar", ".tgz", ".json")):
        what = "a path"
    elif "@" in text or ":" in text:
        what = "an OCI reference"
    elif "/" in text:
        what = "a path or an OCI reference"
    else:
        raise UsageError(f"{text!a} is not a tag.", hint=_tags(known))
    raise UsageError(f"{text!a} is {what}, where the name of a capsule's tag must stand.", hint=_tags(known))


def _check_key(tag: str) -> None:
    if not _TAG.fullmatch(tag):
        raise RegistryError(f"'{shown(tag)}' is not a tag.", hint="A tag reads node24-v1.")


def _capsule(tag: str, value: object) -> Capsule:
    fields = _fields(value, tag, ("runtime", "tools", "variants"))
    runtime = _fields(fields["runtime"], f"{tag}.runtime", ("id", "version"))
    variants = _object(fields["variants"], f"{tag}.variants")
    parsed: dict[Platform, Variant] = {}
    for name, variant in variants.items():
        try:
            platform = Platform.parse(name)
        except UsageError as error:
            raise RegistryError(f"{tag}: {shown(error.message)}") from error
        parsed[platform] = _variant(f"{tag}.variants.{name}", variant)
    return Capsule(
        runtime_id=_text(runtime["id"], f"{tag}.runtime.id"),
        runtime_version=_text(runtime["version"], f"{tag}.runtime.version"),
        tools=_texts(fields["tools"], f"{tag}.tools"),
        variants=parsed,
    )


def _variant(where: str, value: object) -> Variant:
    fields = _fields(value, where, ("filename", "sha256", "size", "install_root", "urls", "revoked"))
    size, revoked = fields["size"], fields["revoked"]
    if not isinstance(size, int) or isinstance(size, bool):
        raise RegistryError(f"The registry lock's '{where}.size' is not a whole number.")
    return Variant(
        filename=_text(fields["filename"], f"{where}.filename"),
        sha256=_text(fields["sha256"], f"{where}.sha256"),
        size=size,
        install_root=_text(fields["install_root"], f"{where}.install_root"),
        urls=_texts(fields["urls"], f"{where}.urls"),
        revoked=None if revoked is None else _text(revoked, f"{where}.revoked"),
    )


def _check_variant(capsule: Capsule, platform: Platform, variant: Variant, place: str) -> None:
    if not _FILE_NAME.fullmatch(variant.filename):
        raise RegistryError(f"{place}: {variant.filename!a} is not a bundle's plain file name.")
    if not _SHA256.fullmatch(variant.sha256):
        raise RegistryError(f"{place}: {variant.sha256!a} is not a SHA-256 in lower-case hexadecimal.")
    if variant.size <= 0:
        raise RegistryError(f"{place}: a bundle can't have {variant.size} bytes.")
    expected = install_root(capsule.runtime_id, capsule.runtime_version, platform)
    if variant.install_root != expected:
        raise RegistryError(f"{place}: the install root is {variant.install_root!a}, not '{expected}'.")
    for url in variant.urls:
        if not _is_plain_url(url):
            raise RegistryError(f"{place}: {url!a} is not an http or https URL without user and fragment.")
    if len(set(variant.urls)) != len(variant.urls):
        raise RegistryError(f"{place}: a URL is listed twice.")
    if variant.revoked is not None and not (variant.revoked.strip() and variant.revoked.isprintable()):
        raise RegistryError(f"{place}: the reason for revoking it must be one line of text.")


def _is_plain_url(url: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and port != 0
        and "@" not in parts.netloc
        and "#" not in url
    )


def _fields(value: object, where: str, keys: tuple[str, ...]) -> dict[str, object]:
    """Return an object's fields: exactly `keys`."""
    fields = _object(value, where)
    for key in keys:
        if key not in fields:
            raise RegistryError(f"The registry lock's '{where}' lacks '{key}'.")
    for key in fields:
        if key not in keys:
            raise RegistryError(
                f"The registry lock's '{where}' has the field '{shown(key)}', which doesn't exist."
            )
    return fields


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise RegistryError(f"The registry lock's '{where}' is not an object.")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise RegistryError(f"The registry lock's '{where}' is not a string.")
    return value


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise RegistryError(f"The registry lock's '{where}' is not a list.")
    return tuple(_text(item, where) for item in value)


def _tags(known: Iterable[str] | None) -> str:
    if known is None:
        return "A tag reads node24-v1; 'capsule tags' lists them."
    return f"Tags: {_listed(known)} ('capsule tags' lists them)."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
