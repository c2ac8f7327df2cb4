"""A packed file of tasks: source, helpers, packages and policy in one file, `<name>.wasm`.

It is a WebAssembly module without code: the header, and one custom section named `capsule.task.v1` whose
content is zlib-compressed JSON. Format of the container: WebAssembly core specification, 5.5 (modules) and
5.5.3 (custom sections). The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from ..runtime.errors import ContractError
from .modules import packed
from .options import Folder, Policy, make_policy
from .source import TaskFile, read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = "capsule.task.v1"
MAX_ARTIFACT_BYTES: Final = 256 << 20
MAX_UNPACKED_BYTES: Final = 512 << 20

_HEADER: Final = b"\0asm\x01\0\0\0"
_CUSTOM_SECTION: Final = b"\0"
_DIGEST_BYTES: Final = 32
_FIELDS: Final = {"schema_version", "path", "source", "entry", "tasks", "own", "installed"}


def pack(file: TaskFile, own: Mapping[str, bytes], installed: Mapping[str, bytes]) -> bytes:
    """Return a file of tasks, packed.

    Args:
        file: The file.
        own: Modules of its folder, by their names.
        installed: Files of installed packages, by their names.
    """
    document = {
        "schema_version": SCHEMA,
        "path": file.path,
        "source": file.source,
        "entry": file.entry,
        "tasks": [policy._asdict() for policy in file.tasks.values()],
        "own": _encoded(own),
        "installed": _encoded(installed),
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    payload = hashlib.sha256(text).digest() + zlib.compress(text, 9)
    name = SCHEMA.encode()
    section = _leb128(len(name)) + name + payload
    return _HEADER + _CUSTOM_SECTION + _leb128(len(section)) + section


def load_artifact(path: str) -> TaskFile:
    """Read a packed file. What it asks for is checked by the rules that a source file's words are.

    Raises:
        ConfigError: It isn't there.
        ContractError: It isn't one, or isn't whole.
    """
    data = read_file(path, limit=MAX_ARTIFACT_BYTES)
    try:
        return _task_file(_unpack(data))
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise ContractError(
            f"{path} is no packed task: {error}.", hint="'capsule build FILE --export' makes one."
        ) from None


def _task_file(document: Any) -> TaskFile:
    if not isinstance(document, dict) or set(document) != _FIELDS or document["schema_version"] != SCHEMA:
        raise ValueError(f"its document isn't one of {SCHEMA}")
    tasks = {policy.name: policy for policy in map(_policy, document["tasks"])}
    if document["entry"] not in tasks:
        raise ValueError("its entry point is none of its tasks")
    return TaskFile(
        str(document["path"]),
        str(document["source"]),
        tasks,
        document["entry"],
        packed(_decoded(document["own"]), _decoded(document["installed"])),
    )


def _unpack(data: bytes) -> Any:
    if not data.startswith(_HEADER + _CUSTOM_SECTION):
        raise ValueError("it doesn't begin as one")
    offset = len(_HEADER) + 1
    size, offset = _read_leb128(data, offset)
    if offset + size != len(data):
        raise ValueError("it is cut short, or something follows it")
    length, offset = _read_leb128(data, offset)
    if data[offset : offset + length] != SCHEMA.encode():
        raise ValueError(f"it has no section {SCHEMA}")
    offset += length
    digest = data[offset : offset + _DIGEST_BYTES]
    inflater = zlib.decompressobj()
    text = inflater.decompress(data[offset + _DIGEST_BYTES :], MAX_UNPACKED_BYTES)
    if not inflater.eof or inflater.unused_data:
        raise ValueError(f"it is cut short, or has more than {MAX_UNPACKED_BYTES} bytes unpacked")
    if hashlib.sha256(text).digest() != digest:
        raise ValueError("its bytes were changed")
    return json.loads(text)


def _policy(document: Mapping[str, Any]) -> Policy:
    """Read a policy by the rules of the options: a packed file can't ask for more than a source could."""
    if set(document) != set(Policy._fields):
        raise ValueError("a task's policy has other fields")
    folders = [Folder(*folder) for folder in document["folders"]]
    options: dict[str, Any] = {
        "compute": document["fuel"],
        "ram": document["memory"],
        "timeout": None if document["timeout_ms"] is None else f"{int(document['timeout_ms'])}ms",
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


def _encoded(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


def _decoded(files: Mapping[str, str]) -> dict[str, bytes]:
    return {str(name): base64.b64decode(data, validate=True) for name, data in files.items()}


def _leb128(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _read_leb128(data: bytes, offset: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if offset >= len(data):
            raise ValueError("it is cut short")
        number |= (data[offset] & 0x7F) << shift
        offset += 1
        if not data[offset - 1] & 0x80:
            return number, offset
    raise ValueError("a size in it has too many digits")
