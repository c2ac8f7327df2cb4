"""`check` and `inspect` of a packed file of tasks: what it holds and asks for, before anybody runs it.

Other commands are for runtime bundles alone, and refuse one.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from ..runtime.errors import UsageError
from ..runtime.rules import shown
from ..sandbox.languages import PACKED_SUFFIX
from .output import human_size, print_facts, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from ..sandbox.artifact import Artifact
    from ..sandbox.options import Policy

SCHEMA: Final = "capsule-build.task.v1"
_WEBASSEMBLY: Final = b"\0asm"


class PackedFile(NamedTuple):
    """A packed file that was checked.

    Attributes:
        path: Where it is.
        artifact: What it holds.
        sha256: Its digest.
        size: Its bytes.
    """

    path: Path
    artifact: Artifact
    sha256: str
    size: int


def is_packed(bundle: Path) -> bool:
    """Return whether this is named as packed tasks are."""
    return bundle.suffix == PACKED_SUFFIX


def refuse_packed(command: str, *bundles: Path) -> None:
    """Refuse packed tasks, by their name or first bytes, in a command that is for runtime bundles alone.

    Raises:
        UsageError: One of the files holds tasks.
    """
    for bundle in bundles:
        if is_packed(bundle) or _begins_as_packed(bundle):
            raise UsageError(
                f"'{command}' is for runtime capsules' bundles (.tar.gz); {bundle} holds tasks.",
                hint="'capsule-build inspect FILE.wasm' shows them.",
            )


def read(bundle: Path) -> PackedFile:
    """Read a packed file and check it.

    Raises:
        ConfigError: It isn't there.
        ContractError: It isn't one, or isn't whole.
    """
    from ..sandbox.artifact import read_artifact, read_artifact_bytes

    data = read_artifact_bytes(str(bundle))
    return PackedFile(bundle, read_artifact(data, str(bundle)), hashlib.sha256(data).hexdigest(), len(data))


def show_json(packed: PackedFile) -> None:
    """Print all that is known of a packed file, for machines."""
    artifact = packed.artifact
    print_json(
        {
            "schema_version": SCHEMA,
            "bundle": str(packed.path),
            "ok": True,
            "sha256": packed.sha256,
            "size": packed.size,
            "file": artifact.file.path,
            "version": artifact.version,
            "entry": artifact.file.entry,
            "guest": artifact.guest._asdict(),
            "tasks": tasks_json(artifact),
            "files": {name: len(content) for name, content in sorted(artifact.contents.items())},
        }
    )


def show(packed: PackedFile, *, files: bool) -> None:
    """Print what is known of a packed file, for people; also the files that it was packed from, if asked."""
    artifact = packed.artifact
    facts = [
        ("packed from", shown(artifact.file.path)),
        ("version", artifact.version or "none"),
        ("entry", artifact.file.entry),
        *particulars(artifact),
        ("sha256", packed.sha256),
        ("size", human_size(packed.size)),
    ]
    if files:
        facts.append(("files", _files(artifact)))
    print_facts(facts)


def particulars(artifact: Artifact) -> list[tuple[str, str]]:
    """Return, for people, the guest that a packed file is for, and what each of its tasks is granted."""
    from ..sandbox.granted import describe

    tasks = [(f"task {name}", describe(task)) for name, task in artifact.file.tasks.items()]
    return [("guest", f"{artifact.guest.language} {artifact.guest.sha256}"), *tasks]


def tasks_json(artifact: Artifact) -> dict[str, object]:
    """Return, for machines, what each task of a packed file is granted."""
    return {name: _json_of(task) for name, task in artifact.file.tasks.items()}


def _begins_as_packed(bundle: Path) -> bool:
    # What can't be read is told by who has to read it. A pipe would be waited for, and lack its first bytes.
    with contextlib.suppress(OSError):
        if bundle.is_file():
            with bundle.open("rb") as stream:
                return stream.read(len(_WEBASSEMBLY)) == _WEBASSEMBLY
    return False


def _files(artifact: Artifact) -> str:
    if not artifact.contents:
        return "one text, made of all"
    names = sorted(artifact.contents)
    return "\n".join(f"{shown(name)}  {human_size(len(artifact.contents[name]))}" for name in names)


def _json_of(policy: Policy) -> dict[str, object]:
    folders = [folder._asdict() for folder in policy.folders]
    return {**policy._asdict(), "folders": folders}
