"""The registry lock, `registry.lock.json`: which file a tag stands for on which platform.

A consumer names a tag and nothing else; the lock says which file, with which digest, that is. The format is
`agentcompass.capsule-registry.v1`, an object of `capsules` by tag, each with its `variants` by platform, and,
where there are some, `tasks` by name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .errors import UsageError
from .manifest import ManifestError, check_runtime, install_root
from .platforms import Platform
from .registry_parts import (
    RegistryError,
    RevokedError,
    check_file,
    read_fields,
    read_number,
    read_object,
    read_optional,
    read_text,
    read_texts,
)
from .registry_tasks import TASK_PLATFORM, ResolvedTask, Task, check_task, read_task, task_document
from .rules import shown
from .strict_json import JsonError, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = [
    "MAX_REGISTRY_BYTES",
    "REGISTRY_SCHEMA",
    "TASK_PLATFORM",
    "Capsule",
    "Registry",
    "RegistryError",
    "Resolved",
    "ResolvedTask",
    "RevokedError",
    "Task",
    "Variant",
    "check_tag",
    "load_registry",
]

REGISTRY_SCHEMA: Final = "agentcompass.capsule-registry.v1"

MAX_REGISTRY_BYTES: Final = 16 << 20
"""Bytes of a registry lock: some thousand times what one of a few dozen capsules has."""

_TAG = re.compile(r"[a-z][a-z0-9]*(-[a-z][a-z0-9]*)*-v[1-9][0-9]*")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}\.tar\.gz")


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

    @property
    def build_command(self) -> str:
        """The command that builds it; for glibc it needs no option."""
        libc = self.platform.libc
        return f"capsule-build {self.capsule.runtime_id}" + ("" if libc == "glibc" else f" --libc {libc}")


@dataclass(frozen=True)
class Registry:
    """All capsules of a registry lock, by tag, and all its task bundles, by name."""

    capsules: Mapping[str, Capsule]
    tasks: Mapping[str, Task] = field(default_factory=dict)

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
        fields = read_fields(document, "registry", ("schema_version", "capsules"), optional=("tasks",))
        if fields["schema_version"] != REGISTRY_SCHEMA:
            raise RegistryError(
                f"The registry lock's 'schema_version' is {fields['schema_version']!a}, "
                f"not '{REGISTRY_SCHEMA}'."
            )
        capsules = read_object(fields["capsules"], "capsules")
        for tag in capsules:
            _check_key(tag)
        tasks = read_object(fields.get("tasks", {}), "tasks")
        registry = cls(
            {tag: _capsule(tag, value) for tag, value in capsules.items()},
            {name: read_task(name, value) for name, value in tasks.items()},
        )
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
        for name, task in self.tasks.items():
            check_task(name, task)
            other = seen.setdefault(task.filename.lower(), f"the task {name}")
            if other != f"the task {name}":
                raise RegistryError(f"The task {name} has the file name '{task.filename}', as has {other}.")

    def to_bytes(self) -> bytes:
        """Return the lock's one spelling: sorted keys, indented by 2, a newline at the end."""
        document: dict[str, object] = {
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
        if self.tasks:
            # A lock without tasks is one that older readers know.
            document["tasks"] = {name: task_document(task) for name, task in self.tasks.items()}
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

    def task(self, name: str) -> ResolvedTask:
        """Return the task bundle of a name.

        Raises:
            UsageError: There is none.
            RevokedError: It has been revoked.
        """
        task = self.known_task(name)
        if task.revoked is not None:
            raise RevokedError(
                f"The task '{name}' has been revoked: {task.revoked}", hint="Take a newer registry lock."
            )
        return ResolvedTask(name, task)

    def known_task(self, name: str) -> Task:
        """Return the task bundle of a name, also a revoked one.

        Raises:
            UsageError: There is none.
        """
        task = self.tasks.get(name)
        if task is None:
            raise UsageError(
                f"There is no task {name!a}.", hint=f"The registry lock has: {_listed(self.tasks)}."
            )
        return task

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
    fields = read_fields(value, tag, ("runtime", "tools", "variants"))
    runtime = read_fields(fields["runtime"], f"{tag}.runtime", ("id", "version"))
    variants = read_object(fields["variants"], f"{tag}.variants")
    parsed: dict[Platform, Variant] = {}
    for name, variant in variants.items():
        try:
            platform = Platform.parse(name)
        except UsageError as error:
            raise RegistryError(f"{tag}: {shown(error.message)}") from error
        parsed[platform] = _variant(f"{tag}.variants.{name}", variant)
    return Capsule(
        runtime_id=read_text(runtime["id"], f"{tag}.runtime.id"),
        runtime_version=read_text(runtime["version"], f"{tag}.runtime.version"),
        tools=read_texts(fields["tools"], f"{tag}.tools"),
        variants=parsed,
    )


def _variant(where: str, value: object) -> Variant:
    fields = read_fields(value, where, ("filename", "sha256", "size", "install_root", "urls", "revoked"))
    return Variant(
        filename=read_text(fields["filename"], f"{where}.filename"),
        sha256=read_text(fields["sha256"], f"{where}.sha256"),
        size=read_number(fields["size"], f"{where}.size"),
        install_root=read_text(fields["install_root"], f"{where}.install_root"),
        urls=read_texts(fields["urls"], f"{where}.urls"),
        revoked=read_optional(fields["revoked"], f"{where}.revoked"),
    )


def _check_variant(capsule: Capsule, platform: Platform, variant: Variant, place: str) -> None:
    check_file(variant, _FILE_NAME, place)
    expected = install_root(capsule.runtime_id, capsule.runtime_version, platform)
    if variant.install_root != expected:
        raise RegistryError(f"{place}: the install root is {variant.install_root!a}, not '{expected}'.")


def _tags(known: Iterable[str] | None) -> str:
    if known is None:
        return "A tag reads node24-v1; 'capsule tags' lists them."
    return f"Tags: {_listed(known)} ('capsule tags' lists them)."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
