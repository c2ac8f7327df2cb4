"""`capsule build`: from a source file to a packed one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..runtime.errors import ContractError, UsageError
from ..runtime.files import write_atomically
from .artifact import load_artifact, pack
from .languages import JAVASCRIPT, PACKED_SUFFIX, language_of
from .modules import collect
from .options import ConfigError
from .project import FILE, load_project
from .running import machine
from .source import load_source
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Packed(NamedTuple):
    """A packed file.

    Attributes:
        path: Where it is.
        sha256: Its digest.
        size: Its bytes.
        entry: The task that a run begins with.
        tasks: All its tasks.
        modules: The files of modules and packages in it.
    """

    path: str
    sha256: str
    size: int
    entry: str
    tasks: tuple[str, ...]
    modules: tuple[str, ...]


def build(
    name: str | None, *, working: str, packages: Sequence[str], export: bool, say: Callable[[str], None]
) -> Packed:
    """Pack a file.

    Args:
        name: The source file; `None`: the entry point that `capsule.toml` names.
        working: The working folder.
        packages: Folders of installed packages, before those of the active virtual environment.
        export: Whether it is written beside the source; else it goes into the user's cache.
        say: Hears what takes its time.

    Raises:
        CapsuleError: It can't be packed, or what is there already was packed from another source.
    """
    project = load_project(working)
    name = name or project.entrypoint
    if name is None:
        raise ConfigError("No file was named.", hint=f"Name one, or set [workflow] entrypoint in {FILE}.")
    source = Path(working, name)
    language = language_of(name)
    if language is None:
        raise ConfigError(
            f"{name} is no Python file (.py), nor one of JavaScript or TypeScript (.js, .mjs, .ts)."
        )
    for folder in packages:
        if not Path(folder).is_dir():
            raise ConfigError(f"--packages {folder} is not a folder.")
    installed: dict[str, bytes] = {}
    if language == JAVASCRIPT:
        from .javascript.loading import load_javascript

        loaded = load_javascript(str(source), project, machine(say, language), say)
        file, own, modules = loaded.file, loaded.own, set(loaded.inputs) - {source.name}
    else:
        file = load_source(str(source), project, machine(say), packages=packages)
        own, installed = collect(str(source.resolve().parent), file.source.encode(), packages)
        modules = {*own, *installed}
    data = pack(file, own, installed)
    digest = hashlib.sha256(data).hexdigest()
    path = source.with_suffix(PACKED_SUFFIX)
    if export:
        _check_overwritten(path, source.name)
    else:
        kept = Path(Store().root, "packed")
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = kept / f"{source.stem}-{digest[:16]}{PACKED_SUFFIX}"
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path.parent} can't be written to.")
    write_atomically(path, data)
    return Packed(str(path), digest, len(data), file.entry, tuple(file.tasks), tuple(sorted(modules)))


def _check_overwritten(path: Path, source: str) -> None:
    """Refuse to write over a packed file of another source, such as of `hello.py` for `hello.ts`."""
    if not path.exists():
        return
    try:
        other = Path(load_artifact(str(path)).path).name
        if other == source:
            return
        what = f"{path} was packed from {other}"
    except ContractError:
        what = f"{path} is no packed task"
    raise UsageError(f"{what}, and isn't overwritten.", hint=f"Remove it, or give {source} another name.")
