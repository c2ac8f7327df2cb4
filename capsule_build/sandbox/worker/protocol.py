"""The lines between a program and its worker, and between the worker and the processes that run its tasks.

Each line is a JSON object. What a request may hold is in `FIELDS`; `docs/worker.md` tells it to users.
"""

from __future__ import annotations

from .. import jsontext
from ..records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Final

MAX_LINE_BYTES: Final = 256 << 20
"""Of a request. A longer one is answered with an error, and isn't kept."""

FIELDS: Final[dict[str, type]] = {
    "file": str,
    "args": list,
    "kwargs": dict,
    "mounts": list,
    "packages": list,
    "cwd": str,
    "shared_compute": bool,
    "trace": bool,
    "trust": dict,
    "stream": bool,
    "cancel": bool,
}
"""What a request may hold beside `id`."""

READY: Final = b"+"
PRINTED: Final = b"~"
DONE: Final = b"="
DONE_AND_GONE: Final = b"."
"""What a line of a child begins with: it can take a task; the task has printed; it is done; it is done, and
the child ends, since something in it still waits."""


class RequestError(ValueError):
    """A line is no request.

    Attributes:
        id: Its id, where it has one.
    """

    def __init__(self, message: str, identity: str | int | None = None) -> None:
        super().__init__(message)
        self.id = identity


class Asked(Record):
    """A request.

    Attributes:
        id: What its answer is known by.
        fields: What it holds beside that.
        line: As it came, without its end.
    """

    id: str | int
    fields: dict[str, Any]
    line: bytes


def read_request(line: bytes) -> Asked:
    """Read a line.

    Raises:
        RequestError: It is no request.
    """
    try:
        document = jsontext.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"A line must be JSON: {error}.") from None
    if not isinstance(document, dict):
        raise RequestError("A line must be a JSON object.")
    identity = document.pop("id", None)
    if not isinstance(identity, str | int) or isinstance(identity, bool):
        raise RequestError("A request must have an id: a text or a whole number.")
    for name, value in document.items():
        kind = FIELDS.get(name)
        if kind is None:
            raise RequestError(f"A request has no field '{name}'. Fields: id, {', '.join(FIELDS)}.", identity)
        if not isinstance(value, kind):
            raise RequestError(f"{name} must be {_NAMES[kind]}.", identity)
    for name in ("mounts", "packages"):
        if not all(isinstance(item, str) for item in document.get(name, ())):
            raise RequestError(f"{name} must be a list of texts.", identity)
    if not document.get("cancel") and "file" not in document:
        raise RequestError("A request must name a file.", identity)
    return Asked(identity, document, line)


def error_line(identity: str | int | None, message: str) -> bytes:
    """Return the line that says that a request has no output."""
    return jsontext.dumps({"id": identity, "error": message}).encode() + b"\n"


_NAMES: Final[dict[type, str]] = {
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "true or false",
}
