"""The modules that a task can import beside the standard library, and what it can read by them.

From the file's own folder: what the file names in an import, and what that names in turn, and nothing else:
the folder may hold more than code. From folders of installed packages (`--packages`, the active virtual
environment): any package. Nothing is imported on the host; sources are handed to the guest, which compiles
and runs them.
"""

from __future__ import annotations

import binascii
import os
import sys

from .options import ConfigError
from .records import Record
from .trees import FolderTree, PackedTree, walk

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Final

    from .trees import Tree

PACKAGES: Final = "/packages/"
"""What the guest's names for files of installed packages begin with."""

_NAMES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,* \t"
_CALLED: Final = rb"(?:import_module|__import__)\(\s*['\"]([\w.]+)['\"]"
_MACHINE_CODE: Final = (".so", ".pyd", ".dylib")


_environments: dict[str | None, list[Source]] = {}


class Source(Record):
    """One place of modules.

    Attributes:
        tree: Its files.
        tops: The top-level names that may be imported from it; `None`: all.
        prefix: How the guest names its files.
    """

    tree: Tree
    tops: frozenset[str] | None
    prefix: str


class Modules:
    """All places of a task's modules, in the order in which they are asked."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def module(self, name: Any) -> dict[str, Any] | None:
        """Return a module: `kind` (`module`, `package`, `extension`), `path`, `source`; or `None`."""
        if not isinstance(name, str):
            return None
        parts = name.split(".")
        if len(parts) > 30 or not all(part.isidentifier() for part in parts):
            return None
        for source in self._of(parts[0]):
            base = "/".join(parts)
            for kind, path in (("package", f"{base}/__init__.py"), ("module", f"{base}.py")):
                if source.tree.kind(path) == "file":
                    text = _decoded(source.tree.read(path))
                    return {"kind": kind, "path": source.prefix + path, "source": text}
            extension = _extension(source.tree, parts)
            if extension is not None:
                return {"kind": "extension", "path": extension}
            if source.tree.kind(base) == "folder":
                # A namespace package, which has no code of its own.
                return {"kind": "package", "path": f"{source.prefix}{base}/__init__.py", "source": ""}
        return None

    def data(self, package: Any, path: Any) -> dict[str, Any] | None:
        """Return a file or folder of a package: `kind` (`file`, `folder`), and `data` (base64) or `names`.

        Args:
            package: Its name; or `None`, and `path` is one that `module` gave, or a file beside it.
            path: Relative to the package.
        """
        if not isinstance(path, str) or not (package is None or isinstance(package, str)):
            return None
        relative = path.removeprefix(PACKAGES) if package is None else f"{package.replace('.', '/')}/{path}"
        parts = relative.rstrip("/").split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        for source in self._of(parts[0]):
            if source.tree.kind(f"{parts[0]}/__init__.py") != "file":
                continue
            name = "/".join(parts)
            kind = source.tree.kind(name)
            if kind == "file":
                return {
                    "kind": kind,
                    "data": binascii.b2a_base64(source.tree.read(name), newline=False).decode(),
                }
            if kind == "folder":
                return {"kind": kind, "names": source.tree.names(name)}
        return None

    def _of(self, top: str) -> Iterator[Source]:
        for source in self._sources:
            if source.tops is None or top in source.tops:
                yield source


def _extension(tree: Tree, parts: Sequence[str]) -> str | None:
    folder = "/".join(parts[:-1])
    if folder and tree.kind(folder) != "folder":
        return None
    for name in tree.names(folder):
        if name.startswith(parts[-1] + ".") and name.endswith(_MACHINE_CODE):
            return name
    return None


def _decoded(data: bytes) -> str:
    if b"coding" not in b"".join(data.split(b"\n", 2)[:2]):
        return data.decode("utf-8-sig", "backslashreplace")
    import re

    # PEP 263: another encoding than UTF-8 is said in one of the first two lines.
    declared = re.match(rb"(?:[ \t\f]*#[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([-\w.]+)", data)
    encoding = declared[1].decode() if declared else "utf-8-sig"
    try:
        return data.decode("utf-8-sig" if encoding.lower().replace("_", "-") == "utf-8" else encoding)
    except (LookupError, UnicodeDecodeError):
        return data.decode("utf-8", "backslashreplace")


def imported(source: bytes) -> set[str]:
    """Return the top-level names that a module may import: all that it names, and rather more than fewer."""
    names: set[str] = set()
    # By hand, since `re` takes as long to import as the rest of the way to a task.
    for line in source.split(b"\n"):
        if b"import" in line or b"from" in line:
            for statement in line.replace(b":", b";").split(b";"):
                names.update(_imported_by(statement.lstrip(b" \t")))
    if b"import_module(" in source or b"__import__(" in source:
        import re

        names.update(name.split(b".")[0].decode() for name in re.findall(_CALLED, source))
    return names - sys.stdlib_module_names - {"capsule", "__future__"}


def _imported_by(statement: bytes) -> Iterator[str]:
    for word in (b"import", b"from"):
        rest = statement.removeprefix(word)
        if rest != statement and rest[:1] in (b" ", b"\t"):
            rest = rest[: len(rest) - len(rest.lstrip(_NAMES))]
            for item in rest.split(b",") if word == b"import" else [rest]:
                first = item.split()[:1]
                if first and not first[0].startswith(b"."):
                    yield first[0].split(b".")[0].decode()


def closure(tree: Tree, source: bytes) -> frozenset[str]:
    """Return the top-level modules and packages of a tree that a module needs, also by way of each other.

    Raises:
        ConfigError: One of them can't be read, or is too large.
    """
    needed: set[str] = set()
    waiting = imported(source)
    while waiting:
        top = waiting.pop()
        if top in needed:
            continue
        for name in (top, f"{top}.py"):
            if tree.kind(name) is not None:
                needed.add(top)
                try:
                    files = [found for found in walk(tree, name) if found.name.endswith(".py")]
                except OSError as error:
                    raise ConfigError(f"The import of {top} can't be read: {error}.") from None
                for found in files:
                    waiting |= imported(found.data) - needed
    return frozenset(needed)


def from_folder(folder: str, source: bytes, packages: Iterable[str]) -> Modules:
    """Return the modules of a file: those of its folder that it needs, and all installed packages.

    Args:
        folder: The file's folder.
        source: The file's bytes.
        packages: Folders of installed packages, before the active virtual environment's.
    """
    sources = []
    if imported(source):
        own = FolderTree(folder)
        sources.append(Source(own, closure(own, source), ""))
    sources += [Source(FolderTree(path), None, PACKAGES) for path in packages]
    return Modules([*sources, *_environment_sources()])


def _environment_sources() -> list[Source]:
    key = os.environ.get("VIRTUAL_ENV")
    if key not in _environments:
        # Once for all requests of a process.
        found = [Source(FolderTree(path), None, PACKAGES) for path in environment_packages()]
        if not found:
            return []
        _environments[key] = found
    return _environments[key]


def environment_packages() -> list[str]:
    """Return the folders of packages of the active virtual environment, or of the one that this runs in."""
    prefix = os.environ.get("VIRTUAL_ENV") or (sys.prefix if sys.prefix != sys.base_prefix else None)
    if prefix is None:
        return []
    try:
        names = sorted(os.listdir(f"{prefix}/lib"))
    except OSError:
        return []
    folders = [f"{prefix}/lib/{name}/site-packages" for name in names if name.startswith("python3")]
    return [folder for folder in folders if os.path.isdir(folder)]


def packed(own: dict[str, bytes], installed: dict[str, bytes]) -> Modules:
    """Return the modules of a packed file."""
    return Modules([Source(PackedTree(own), None, ""), Source(PackedTree(installed), None, PACKAGES)])


def collect(folder: str, source: bytes, packages: Iterable[str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return all files that a file needs: those of its folder, and those of installed packages.

    Machine code is left out; its name stays, so that an import still says why it can't work.
    """
    own = FolderTree(folder)
    needed = closure(own, source)
    mine = _files(own, needed)
    waiting = imported(source)
    for data in mine.values():
        waiting |= imported(data)
    installed: dict[str, bytes] = {}
    for path in (*packages, *environment_packages()):
        tree = FolderTree(path)
        everything = b"".join(b"import " + name.encode() + b"\n" for name in sorted(waiting - needed))
        for name, data in _files(tree, closure(tree, everything)).items():
            installed.setdefault(name, data)
            if name.endswith(".py"):
                # What it needs may lie in the next folder.
                waiting |= imported(data)
    return mine, installed


def _files(tree: Tree, tops: Iterable[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for top in sorted(tops):
        package = tree.kind(f"{top}/__init__.py") == "file"
        for name in (top, f"{top}.py"):
            for file in walk(tree, name):
                if file.name.endswith(_MACHINE_CODE):
                    found[file.name] = b""
                elif package or file.name.endswith(".py"):
                    found[file.name] = file.data
    return found
