"""A packed file of tasks: source, helpers, packages and policy in one file, `<name>.wasm`.

It is a WebAssembly module without code: the header, and one custom section named `capsule.task.v1`. That
holds the SHA-256 of what follows in it: JSON, compressed with zlib. Format of the container: WebAssembly core
specification, 5.5 (modules) and 5.5.3 (custom sections); docs/task-bundles.md has the JSON. The same input
gives the same bytes, and no byte can be changed unnoticed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Final

from ..runtime.errors import ContractError
from ..runtime.regular import read_named
from ..runtime.strict_json import loads
from .guests import Guest
from .languages import JAVASCRIPT, PYTHON, language_of
from .linking.binary import CUSTOM_SECTION, MODULE_PREAMBLE, section, sized
from .modules import PACKAGES, packed
from .options import ConfigError, Folder, Policy, make_policy
from .records import Record
from .source import TaskFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCHEMA: Final = "capsule.task.v1"
MAX_ARTIFACT_BYTES: Final = 256 << 20
MAX_UNPACKED_BYTES: Final = 512 << 20

_BEGINNING: Final = MODULE_PREAMBLE + bytes((CUSTOM_SECTION,))
_DIGEST_BYTES: Final = 32
_DIGITS: Final = frozenset("0123456789abcdef")
_LEVEL: Final = 6
_MAX_VERSION_CHARACTERS: Final = 100
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_MAX_STRUCTURE_BYTES: Final = 4 << 20
"""Of the document, without its texts: a value of two bytes takes sixty, once it is read."""
_FIELDS: Final = {
    "schema_version",
    "path",
    "version",
    "guest",
    "source",
    "entry",
    "tasks",
    "own",
    "installed",
}


class Artifact(Record):
    """What a packed file holds.

    Attributes:
        file: Its tasks, and what they can import.
        guest: The guest that it was packed for.
        version: The workflow's version; `None`: it has none.
        policy_sha256: The digest of what its tasks are granted: see `policy_digest`.
        contents: The files that it was packed from, by their names: see `source_files`. None for JavaScript,
            where one text was made of all.
    """

    file: TaskFile
    guest: Guest
    version: str | None
    policy_sha256: str
    contents: Mapping[str, bytes]


def pack(
    file: TaskFile,
    own: Mapping[str, bytes],
    installed: Mapping[str, bytes],
    *,
    guest: Guest,
    version: str | None = None,
) -> bytes:
    """Return a file of tasks, packed.

    Args:
        file: The file.
        own: Modules of its folder, by their names.
        installed: Files of installed packages, by their names.
        guest: What it is packed for.
        version: The workflow's version.
    """
    # Where it is packed, and only there: another zlib would make other bytes.
    from zlib_ng import zlib_ng

    document = {
        "schema_version": SCHEMA,
        "path": file.path,
        "version": version,
        "guest": guest._asdict(),
        "source": file.source,
        "entry": file.entry,
        "tasks": [policy._asdict() for policy in file.tasks.values()],
        "own": _encoded(own),
        "installed": _encoded(installed),
    }
    content: bytes = zlib_ng.compress(_json(document), _LEVEL)
    name = SCHEMA.encode()
    return MODULE_PREAMBLE + section(CUSTOM_SECTION, sized(name) + hashlib.sha256(content).digest() + content)


def is_version(text: object) -> bool:
    """Return whether this can be a packed file's version: a short line of text, or `None`."""
    return text is None or (
        isinstance(text, str)
        and len(text) <= _MAX_VERSION_CHARACTERS
        and text.isprintable()
        and bool(text.strip())
    )


def policy_digest(tasks: Iterable[Policy]) -> str:
    """Return the SHA-256, in hexadecimal, of what tasks are granted: of their policies as sorted JSON."""
    return hashlib.sha256(_json(sorted((task._asdict() for task in tasks), key=_name))).hexdigest()


def source_files(
    name: str, source: bytes, own: Mapping[str, bytes], installed: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the files that a packed Python file is made of, by the names that the guest has for them."""
    packages = {f"{PACKAGES}{path}": data for path, data in installed.items()}
    return {**own, **packages, name: source}


def read_artifact_bytes(path: str) -> bytes:
    """Return a packed file's bytes, which nothing is said about by that.

    Raises:
        ConfigError: It isn't there, or is too large to be one.
    """
    return read_named(path, limit=MAX_ARTIFACT_BYTES, error=ConfigError)


def read_artifact(data: bytes, path: str) -> Artifact:
    """Read a packed file. What it asks for is checked by the rules that a source file's words are.

    Args:
        data: Its bytes.
        path: Its path, for messages.

    Raises:
        ContractError: It isn't one, or isn't whole.
    """
    try:
        return _artifact(_unpack(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise ContractError(
            f"{path} is no packed task: {error}.", hint="'capsule build FILE --export' makes one."
        ) from None


def _artifact(document: Any) -> Artifact:
    if not isinstance(document, dict) or set(document) != _FIELDS or document["schema_version"] != SCHEMA:
        raise ValueError(f"its document isn't one of {SCHEMA}")
    path, source, version = document["path"], document["source"], document["version"]
    if not isinstance(path, str) or "/" in path or "\0" in path or not isinstance(source, str):
        raise ValueError("its source has no name, or no text")
    if not is_version(version):
        raise ValueError("its version is no short line of text")
    guest: Any = Guest(**document["guest"])
    if guest.language not in (PYTHON, JAVASCRIPT) or guest.language != language_of(path):
        raise ValueError("its guest isn't one of its language")
    if not isinstance(guest.sha256, str) or len(guest.sha256) != 64 or not _DIGITS.issuperset(guest.sha256):
        raise ValueError("its guest has no digest")
    tasks = {policy.name: policy for policy in map(_policy, document["tasks"])}
    if len(tasks) != len(document["tasks"]):
        raise ValueError("a task stands twice in it")
    if document["entry"] not in tasks:
        raise ValueError("its entry point is none of its tasks")
    own, installed = _decoded(document["own"]), _decoded(document["installed"])
    return Artifact(
        TaskFile(path, source, tasks, document["entry"], packed(own, installed)),
        guest,
        version,
        policy_digest(tasks.values()),
        source_files(path, source.encode(), own, installed) if guest.language == PYTHON else {},
    )


def _unpack(data: bytes) -> Any:
    if not data.startswith(_BEGINNING):
        raise ValueError("it doesn't begin as one")
    size, offset = _read_leb128(data, len(_BEGINNING))
    if offset + size != len(data):
        raise ValueError("it is cut short, or something follows it")
    length, offset = _read_leb128(data, offset)
    if data[offset : offset + length] != SCHEMA.encode():
        raise ValueError(f"it has no section {SCHEMA}")
    offset += length
    digest, content = data[offset : offset + _DIGEST_BYTES], data[offset + _DIGEST_BYTES :]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("its bytes were changed")
    inflater = zlib.decompressobj()
    text = inflater.decompress(content, MAX_UNPACKED_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ValueError(f"it is cut short, or has more than {MAX_UNPACKED_BYTES} bytes unpacked")
    if len(_TEXTS.sub(b"", text)) > _MAX_STRUCTURE_BYTES:
        raise ValueError(f"its document has more than {_MAX_STRUCTURE_BYTES} bytes beside its texts")
    return loads(text)


def _policy(document: Mapping[str, Any]) -> Policy:
    """Read a policy by the rules of the options: a packed file can't ask for more than a source could."""
    if set(document) != set(Policy._fields):
        raise ValueError("a task's policy has other fields")
    folders = [Folder(*folder) for folder in document["folders"]]
    options: dict[str, Any] = {
        "compute": document["fuel"],
        "ram": document["memory"],
        "timeout": None if document["timeout_ms"] is None else f"{_whole(document['timeout_ms'])}ms",
        "max_retries": document["max_retries"],
        "allowed_files": [{"path": path, "mode": "rw" if writable else "ro"} for path, writable in folders],
        "allowed_hosts": document["hosts"],
        "env_variables": document["variables"],
    }
    return make_policy(
        {name: value for name, value in options.items() if value is not None},
        name=document["name"],
        function=str(document["function"]),
        where="the packed policy",
        plain=document["plain"] is True,
    )


def _whole(number: object) -> int:
    if not isinstance(number, int):
        raise ValueError("a time in it is no whole number")
    return number


def _name(policy: Mapping[str, Any]) -> str:
    return str(policy["name"])


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


def _decoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {str(name): base64.b64decode(data, validate=True) for name, data in files.items()}


def _read_leb128(data: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if offset >= len(data):
            raise ValueError("it is cut short")
        number |= (data[offset] & 0x7F) << shift
        offset += 1
        if not data[offset - 1] & 0x80:
            if shift and not data[offset - 1]:
                raise ValueError("a size in it isn't written the shortest way")
            return number, offset
    raise ValueError("a size in it has too many digits")
