"""`capsule build`: from a source file to a packed one, and to what lies beside a released one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..runtime.errors import ContractError, UsageError
from ..runtime.files import write_atomically
from .artifact import is_version, pack, read_artifact, read_artifact_bytes, source_files
from .guests import guest_of
from .languages import JAVASCRIPT, PACKED_SUFFIX, language_of
from .modules import PACKAGES, collect, environment_packages
from .options import ConfigError
from .project import FILE, load_project
from .running import machine
from .source import load_source
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ..release.signer import SigningOptions
    from .project import Project
    from .source import TaskFile


class Packed(NamedTuple):
    """A packed file.

    Attributes:
        path: Where it is.
        sha256: Its digest.
        size: Its bytes.
        entry: The task that a run begins with.
        tasks: All its tasks.
        modules: The files of modules and packages in it.
        beside: What was written beside it.
        signer: Who signed it; `None`: nobody.
    """

    path: str
    sha256: str
    size: int
    entry: str
    tasks: tuple[str, ...]
    modules: tuple[str, ...]
    beside: tuple[str, ...] = ()
    signer: str | None = None


class Collected(NamedTuple):
    """What is packed.

    Attributes:
        file: The tasks.
        own: Files that go along: modules of the file's folder.
        installed: Files of installed packages that go along.
        inputs: The files that all of it comes from, by their names in a provenance.
        folders: Where packages were looked for.
        language: The language of its tasks.
    """

    file: TaskFile
    own: dict[str, bytes]
    installed: dict[str, bytes]
    inputs: Mapping[str, bytes]
    folders: tuple[str, ...]
    language: str


def build(
    name: str | None,
    *,
    working: str,
    packages: Sequence[str],
    export: bool,
    say: Callable[[str], None],
    output: str | None = None,
    signing: SigningOptions | None = None,
) -> Packed:
    """Pack a file.

    Args:
        name: The source file; `None`: the entry point that `capsule.toml` names.
        working: The working folder.
        packages: Folders of installed packages, before those of the active virtual environment.
        export: Whether it is written beside the source, with its digest, SBOM and provenance; else it goes
            into the user's cache, alone.
        say: Hears what takes its time.
        output: Another folder to export it to.
        signing: Who signs what is exported; `None`: nobody.

    Raises:
        CapsuleError: It can't be packed or signed, or what is there already was packed from another source.
    """
    project = load_project(working)
    name = name or project.entrypoint
    if name is None:
        raise ConfigError("No file was named.", hint=f"Name one, or set [workflow] entrypoint in {FILE}.")
    if not is_version(project.version):
        raise ConfigError(f"{FILE}: [workflow] version must be one short line of text to be packed.")
    exported = export or output is not None
    if signing is not None and not exported:
        raise UsageError("What is signed must be exported.", hint="Say --export, or --output DIR.")
    if output == "":
        raise UsageError("--output names no folder.", hint="The working folder is '.'.")
    source = Path(working, name)
    collected = _collect(source, name, project, packages, say)
    _check_names([*collected.own, *collected.installed, *collected.inputs])
    file, guest = collected.file, guest_of(collected.language)
    data = pack(file, collected.own, collected.installed, guest=guest, version=project.version)
    digest = hashlib.sha256(data).hexdigest()
    folder = Path(working, output) if output is not None else source.parent
    kept = Path(Store().root, "packed")
    if not exported:
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = kept
    elif output is not None:
        _make_folder(folder)
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} can't be written to.")
    beside: tuple[Path, ...] = ()
    signer = None
    if exported:
        from .exporting import export_set

        path = folder / f"{source.stem}{PACKED_SUFFIX}"
        _check_overwritten(path, source.name)
        beside, signer = export_set(path, data, collected, signing, say)
    else:
        path = folder / f"{source.stem}-{digest[:16]}{PACKED_SUFFIX}"
        write_atomically(path, data)
    modules = {name.removeprefix(PACKAGES) for name in collected.inputs} - {source.name}
    return Packed(
        str(path),
        digest,
        len(data),
        file.entry,
        tuple(file.tasks),
        tuple(sorted(modules)),
        tuple(map(str, beside)),
        signer,
    )


def _collect(
    source: Path, name: str, project: Project, packages: Sequence[str], say: Callable[[str], None]
) -> Collected:
    language = language_of(name)
    if language is None:
        raise ConfigError(
            f"{name} is no Python file (.py), nor one of JavaScript or TypeScript (.js, .mjs, .ts)."
        )
    for folder in packages:
        if not Path(folder).is_dir():
            raise ConfigError(f"--packages {folder} is not a folder.")
    top = source.resolve().parent
    if language == JAVASCRIPT:
        from .javascript.loading import load_javascript

        loaded = load_javascript(str(source), project, machine(say, language), say)
        try:
            inputs = {path: Path(top, path).read_bytes() for path in loaded.inputs}
        except OSError as error:
            raise ConfigError(f"{error.filename} can't be read: {error.strerror}.") from None
        return Collected(loaded.file, loaded.own, {}, inputs, (str(top),), language)
    file = load_source(str(source), project, machine(say), packages=packages)
    own, installed = collect(str(top), file.source.encode(), packages)
    inputs = source_files(file.path, file.source.encode(), own, installed)
    return Collected(file, own, installed, inputs, (*packages, *environment_packages()), language)


def _check_names(names: Iterable[str]) -> None:
    """Refuse names of files that no text can hold: on Linux a name is any bytes."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"The file {name!a} can't be packed: its name is no UTF-8.") from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} can't be made: {error.strerror}.") from None


def _check_overwritten(path: Path, source: str) -> None:
    """Refuse to write over a packed file of another source, such as of `hello.py` for `hello.ts`."""
    if not path.exists():
        return
    try:
        other = read_artifact(read_artifact_bytes(str(path)), str(path)).file.path
        if other == source:
            return
        what = f"{path} was packed from {other}"
    except ContractError:
        what = f"{path} is no packed task"
    raise UsageError(
        f"{what}, and isn't overwritten.",
        hint=f"Export {source} into another folder (--output DIR), or remove that file, or rename {source}.",
    )
