"""The task bundles of a registry lock: its `tasks`, by name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .registry_parts import (
    RegistryError,
    check_digest,
    check_file,
    read_fields,
    read_number,
    read_optional,
    read_text,
    read_texts,
)
from .rules import shown

TASK_PLATFORM: Final = "wasm32"
"""What a task bundle is for: any machine that has its guest."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}\.wasm")
_LANGUAGES: Final = ("javascript", "python")
_FIELDS: Final = (
    "filename",
    "guest",
    "platform",
    "policy_sha256",
    "revoked",
    "sha256",
    "size",
    "urls",
    "version",
)


@dataclass(frozen=True)
class Task:
    """A task bundle.

    Attributes:
        filename: Its name in a store: that of the task, with `.wasm`.
        sha256: Its digest, in lower-case hexadecimal.
        size: Its size in bytes.
        version: The workflow's version; `None`: it has none.
        language: The language of the guest that it was packed for.
        guest_sha256: The digest of that guest.
        policy_sha256: The digest of what its tasks are granted.
        urls: Where it can be had from.
        revoked: Why it must not be used any more; `None` when it may be.
    """

    filename: str
    sha256: str
    size: int
    version: str | None
    language: str
    guest_sha256: str
    policy_sha256: str
    urls: tuple[str, ...] = ()
    revoked: str | None = None


@dataclass(frozen=True)
class ResolvedTask:
    """The answer to a task's name: see `registry_parts.Wanted`."""

    tag: str
    variant: Task
    platform: str = TASK_PLATFORM

    @property
    def build_command(self) -> str:
        """The command that builds it, but for the name of its source."""
        suffix = {"javascript": ".js", "python": ".py"}[self.variant.language]
        return f"capsule build {self.tag}{suffix} --output dist"


def read_task(name: str, value: object) -> Task:
    """Read an entry.

    Raises:
        RegistryError: It breaks the format.
    """
    where = f"tasks.{shown(name)}"
    fields = read_fields(value, where, _FIELDS)
    guest = read_fields(fields["guest"], f"{where}.guest", ("language", "sha256"))
    if fields["platform"] != TASK_PLATFORM:
        raise RegistryError(f"The registry lock's '{where}.platform' is not '{TASK_PLATFORM}'.")
    return Task(
        filename=read_text(fields["filename"], f"{where}.filename"),
        sha256=read_text(fields["sha256"], f"{where}.sha256"),
        size=read_number(fields["size"], f"{where}.size"),
        version=read_optional(fields["version"], f"{where}.version"),
        language=read_text(guest["language"], f"{where}.guest.language"),
        guest_sha256=read_text(guest["sha256"], f"{where}.guest.sha256"),
        policy_sha256=read_text(fields["policy_sha256"], f"{where}.policy_sha256"),
        urls=read_texts(fields["urls"], f"{where}.urls"),
        revoked=read_optional(fields["revoked"], f"{where}.revoked"),
    )


def check_task(name: str, task: Task) -> None:
    """Check the rules within an entry.

    Raises:
        RegistryError: One is broken; the message names the entry.
    """
    if not _NAME.fullmatch(name):
        raise RegistryError(f"'{shown(name)}' is not a task's name.", hint="It is a file's, without '.wasm'.")
    place = f"The task {name}"
    check_file(task, _FILE_NAME, place)
    if task.filename != f"{name}.wasm":
        raise RegistryError(f"{place}: its file name is '{task.filename}', not '{name}.wasm'.")
    if task.language not in _LANGUAGES:
        raise RegistryError(f"{place}: there is no guest for {task.language!a}.")
    check_digest(task.guest_sha256, place)
    check_digest(task.policy_sha256, place)
    if task.version is not None and not (task.version.strip() and task.version.isprintable()):
        raise RegistryError(f"{place}: its version must be one line of text.")


def task_document(task: Task) -> dict[str, object]:
    """Return an entry as the lock has it."""
    return {
        "filename": task.filename,
        "guest": {"language": task.language, "sha256": task.guest_sha256},
        "platform": TASK_PLATFORM,
        "policy_sha256": task.policy_sha256,
        "revoked": task.revoked,
        "sha256": task.sha256,
        "size": task.size,
        "urls": list(task.urls),
        "version": task.version,
    }
