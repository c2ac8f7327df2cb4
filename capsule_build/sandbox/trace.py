"""What became of each task instance, in `.capsule/trace.db` of the working folder: a table of SQLite.

It is written where that is asked for, since to import SQLite takes as long as half a warm command. A row is
there from the moment that its task begins, so that one of a process that was killed is seen as well.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..runtime.errors import CapsuleError, ContractError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .options import Policy

FOLDER: Final = ".capsule"
FILE: Final = "trace.db"
RUNNING, COMPLETED, FAILED, INTERRUPTED = "running", "completed", "failed", "interrupted"
BAD: Final = (FAILED, INTERRUPTED)

_FORMAT: Final = 1
_PLACE: Final = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)
"""What SQLite says where the file, whatever is in it, can't be used."""

_ELSEWHERE: Final = "A trace needs a working folder that can be written to; a task without one doesn't."
_BUSY_SECONDS: Final = 10.0
_STARTED_FIELD: Final = 19  # starttime of proc_pid_stat(5), counted behind the program's name
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS instances (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent INTEGER REFERENCES instances (id),
    name TEXT NOT NULL,
    version TEXT,
    file TEXT NOT NULL,
    state TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    duration_ms INTEGER,
    retries INTEGER,
    fuel_limit INTEGER NOT NULL,
    fuel_consumed INTEGER,
    memory_limit INTEGER,
    ram_used INTEGER,
    host_requests TEXT,
    error_type TEXT,
    error_message TEXT,
    process INTEGER NOT NULL,
    process_started INTEGER NOT NULL
)
"""


class TraceError(ContractError):
    """The trace isn't one."""


class Row(NamedTuple):
    """One task instance.

    Attributes:
        id: Its number.
        parent: That of the instance that called it.
        name: The task's name.
        version: The workflow's, as `capsule.toml` has it.
        file: The file's name.
        state: `running`, `completed`, `failed` or `interrupted`: its process ended before it did.
        started_ms: Milliseconds since 1970.
        ended_ms: The same; `None` while it runs.
        duration_ms: As in the envelope, like what follows.
        retries: Tries beyond the first.
        fuel_limit: Units that one try may use.
        fuel_consumed: Units that all tries used.
        memory_limit: Bytes; `None`: as many as there can be.
        ram_used: Bytes.
        host_requests: As in the envelope.
        error_type: What failed.
        error_message: What is said of it.
    """

    id: int
    parent: int | None
    name: str
    version: str | None
    file: str
    state: str
    started_ms: int
    ended_ms: int | None
    duration_ms: int | None
    retries: int | None
    fuel_limit: int
    fuel_consumed: int | None
    memory_limit: int | None
    ram_used: int | None
    host_requests: list[dict[str, Any]] | None
    error_type: str | None
    error_message: str | None


_COLUMNS: Final = ", ".join(Row._fields)


class Trace:
    """Writes rows, for one run of a file.

    Args:
        working: The working folder.
        file: The file's name.
        version: The workflow's.
        say: Hears what can't be written: that changes nothing of the tasks.

    Raises:
        UsageError: The folder, or the file, can't be written to.
        TraceError: What is there is no trace.
    """

    def __init__(self, working: str, file: str, version: str | None, say: Callable[[str], None]) -> None:
        self._file, self._version, self._say = file, version, say
        self._lock = threading.Lock()
        self._open: set[int] = set()
        folder = os.path.join(working, FOLDER)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} can't be made: {error.strerror}.", hint=_ELSEWHERE) from None
        self._connection = _connect(working)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_TABLE)
            self._connection.execute(f"PRAGMA user_version = {_FORMAT}")
        except sqlite3.Error as error:
            self._connection.close()
            raise _unusable(f"{folder}/{FILE} can't be written", error) from None

    def begin(self, policy: Policy, parent: int | None) -> int | None:
        """Add a task instance that begins, and return its number; `None`: it can't be written."""
        row = {
            "parent": parent,
            "name": policy.name,
            "version": self._version,
            "file": self._file,
            "state": RUNNING,
            "started_ms": time.time_ns() // 1_000_000,
            "fuel_limit": policy.fuel,
            "memory_limit": policy.memory,
            "process": os.getpid(),
            "process_started": _started(os.getpid()),
        }
        marks = ", ".join(f":{name}" for name in row)
        number = self._write(f"INSERT INTO instances ({', '.join(row)}) VALUES ({marks})", row)  # noqa: S608
        if number is not None:
            self._open.add(number)
        return number

    def end(self, number: int | None, envelope: Mapping[str, Any]) -> None:
        """Write what became of an instance: what its envelope says."""
        if number is None:
            return
        execution, error = envelope["execution"], envelope["error"] or {}
        row = {
            "id": number,
            "state": COMPLETED if envelope["success"] else FAILED,
            "ended_ms": time.time_ns() // 1_000_000,
            "duration_ms": execution["duration_ms"],
            "retries": execution["retries"],
            "fuel_consumed": execution["fuel_consumed"],
            "ram_used": execution["ram_used"],
            "host_requests": json.dumps(execution["host_requests"]),
            "error_type": error.get("error_type"),
            "error_message": error.get("message"),
        }
        self._write(_update(row), row)
        self._open.discard(number)

    def close(self) -> None:
        """Close it. What hasn't ended by now was interrupted."""
        for number in self._open:
            row = {"id": number, "state": INTERRUPTED, "ended_ms": time.time_ns() // 1_000_000}
            self._write(_update(row), row)
        self._connection.close()

    def _write(self, statement: str, row: Mapping[str, Any]) -> int | None:
        # Nested tasks run on threads of their own, one at a time.
        with self._lock:
            try:
                values = {name: _written(value) for name, value in row.items()}
                return self._connection.execute(statement, values).lastrowid
            except sqlite3.Error as error:
                self._say(f"The trace can't be written: {error}.")
                return None


def _written(value: Any) -> Any:
    """Return a value as SQLite takes it: a name or a message may have what no UTF-8 has."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _update(row: Iterable[str]) -> str:
    return f"UPDATE instances SET {', '.join(f'{name} = :{name}' for name in row)} WHERE id = :id"  # noqa: S608


def _connect(working: str) -> sqlite3.Connection:
    path = os.path.join(working, FOLDER, FILE)
    # A task that may write to the working folder could have put a link here, or a file that isn't a trace.
    for part in (os.path.dirname(path), path):
        if os.path.islink(part):
            raise TraceError(f"{part} is a symlink.", hint="Remove it.")
    try:
        connection = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise _unusable(f"{path} can't be opened", error) from None
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        connection.close()
        raise _unusable(f"{path} can't be read", error) from None
    if found not in (0, _FORMAT):
        connection.close()
        raise TraceError(f"{path} has the format {found}, and this program knows {_FORMAT}.")
    return connection


def _unusable(said: str, error: sqlite3.Error) -> CapsuleError:
    """Return the error for a trace that SQLite refuses: its place is wrong, or it is."""
    # The low byte is the kind; the others say which of it.
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PLACE:
        return UsageError(f"{said}: {error}.", hint=_ELSEWHERE)
    return TraceError(f"{said}: {error}.", hint="Remove it.")


def read_rows(working: str, *, after: int = 0, also: Iterable[int] = ()) -> list[Row]:
    """Return task instances, the oldest first.

    Args:
        working: The working folder.
        after: Only those with a greater number.
        also: Numbers of others.

    Raises:
        UsageError: There is no trace, or it can't be opened.
        TraceError: It isn't one.
    """
    path = os.path.join(working, FOLDER, FILE)
    if not os.path.lexists(path):
        raise UsageError(
            f"There is no trace {path}.",
            hint="It is written with --trace, or with '[trace] enabled = true' in capsule.toml.",
        )
    wanted = (after, json.dumps(list(also)))
    query = (
        f"SELECT {_COLUMNS}, process, process_started FROM instances "  # noqa: S608
        "WHERE id > ? OR id IN (SELECT value FROM json_each(?)) ORDER BY id"
    )
    try:
        with closing(_connect(working)) as connection:
            return [_row(values) for values in connection.execute(query, wanted)]
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise TraceError(f"{path} is no trace: {error}.", hint="Remove it.") from None


def _row(values: tuple[Any, ...]) -> Row:
    row = Row(*values[: len(Row._fields)])
    process, started = values[len(Row._fields) :]
    if row.state == RUNNING and _started(process) != started:
        row = row._replace(state=INTERRUPTED)
    requests = None if row.host_requests is None else json.loads(str(row.host_requests))
    return row._replace(host_requests=requests)


def _started(process: int) -> int | None:
    """Return when a process began, in ticks since the machine did; `None`: there is none."""
    try:
        with open(f"/proc/{process:d}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[_STARTED_FIELD])
