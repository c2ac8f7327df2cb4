"""A file of tasks: what it asks for, and which of its tasks is where a run begins.

What the file says of its tasks is read from its syntax, in an instance of the guest that runs none of its
code and is granted nothing; the guest's Python is the one that its grammar is for. What the words mean is
decided by the host.
"""

from __future__ import annotations

import _blake2
import binascii
import os
import time

from ..runtime.regular import read_named
from . import jsontext
from .instance import Instance, Setup
from .modules import Modules, from_folder
from .options import COMPUTE, ConfigError, Policy, make_policy
from .records import Record
from .store import MAX_NOTE_BYTES

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

    from .machine import Machine
    from .project import Project

MAX_SOURCE_BYTES: Final = 8 << 20

_READING_MEMORY: Final = 1 << 30
_READING_SECONDS: Final = 10.0
_REMEMBERED: Final = 64
_last: list[Any] = []
"""What `load_source` has read last: of what, and what that says, in one. A worker has one file many times."""

_descriptions: dict[tuple[str, str, str, str | None], dict[str, Any]] = {}


class TaskFile(Record):
    """A file that can be run.

    Attributes:
        path: How messages name it.
        source: Its text.
        tasks: Its tasks by their names, in the file's order; with the plain `main()`, where that is the entry
            point.
        entry: The name of the task that a run begins with.
        modules: What it can import.
        code: What the guest has compiled it to; empty: it is compiled when it is run.
    """

    path: str
    source: str
    tasks: Mapping[str, Policy]
    entry: str
    modules: Modules
    code: bytes = b""

    def preparation(self) -> bytes:
        """Return the request by which a guest prepares to run tasks of it (see `guest/capsule_guest.py`)."""
        head = jsontext.dumps({"op": "prepare", "path": self.path, "code": len(self.code)})
        return f"{head}\n{self.code.decode('latin-1')}{self.source}".encode("utf-8", "replace")


def load_source(path: str, project: Project, machine: Machine, *, packages: Sequence[str] = ()) -> TaskFile:
    """Read a Python file.

    Args:
        path: The file.
        project: The defaults of its tasks.
        machine: Reads its syntax.
        packages: Folders of installed packages.

    Raises:
        ConfigError: It isn't there, isn't Python, or what it says of its tasks can't be.
    """
    data = read_named(path, limit=MAX_SOURCE_BYTES, error=ConfigError)
    name = os.path.basename(path)
    key = (machine.key, name, data, project)
    # Read once: another thread may put its own there.
    last = _last[0] if _last else None
    if last is None or last[0] != key:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not UTF-8: {error}.") from None
        tasks, entry = read_tasks(text, name, project, machine)
        last = key, (text, tasks, entry, compiled(text, name, machine))
        _last[:] = [last]
    text, tasks, entry, code = last[1]
    folder = os.path.dirname(os.path.abspath(path))
    return TaskFile(name, text, tasks, entry, from_folder(folder, data, packages), code)


def with_code(file: TaskFile, machine: Machine) -> TaskFile:
    """Return a file with what the guest compiles it to, which is kept: each run of it would compile it."""
    return TaskFile(
        file.path,
        file.source,
        file.tasks,
        file.entry,
        file.modules,
        compiled(file.source, file.path, machine),
    )


def compiled(text: str, name: str, machine: Machine) -> bytes:
    """Return what the guest compiles a Python file to, for `TaskFile`; nothing, where that is too large."""
    code = _describe(text, name, machine, None).get("code")
    return binascii.a2b_base64(code) if isinstance(code, str) else b""


def read_tasks(
    text: str,
    name: str,
    project: Project,
    machine: Machine,
    *,
    source_map: str | None = None,
    hint: str = 'Name one of them: @task(name="main").',
) -> tuple[dict[str, Policy], str]:
    """Return the tasks of a file, and the name of the one that a run begins with.

    Args:
        text: The file's text, or what was made of it.
        name: How messages name it.
        project: The defaults of its tasks.
        machine: Reads its syntax.
        source_map: Tells places in the text from those in the files that it was made of.
        hint: How a task is made the one to begin with.

    Raises:
        ConfigError: What the file says of them can't be, or there is none to begin with.
    """
    described = _describe(text, name, machine, source_map)
    if "problem" in described:
        raise ConfigError(described["problem"])
    tasks: dict[str, Policy] = {}
    for task in described["tasks"]:
        where = task.get("where") or f"{name}, line {task['line']}"
        options = {**project.defaults, **task["options"]}
        policy = make_policy(options, name=task["name"], function=task["function"], where=where)
        _require_memory(policy, options, machine, where)
        if policy.name in tasks:
            raise ConfigError(f"{where}: there are two tasks '{policy.name}'.")
        tasks[policy.name] = policy
    if "main" in tasks:
        return tasks, "main"
    if "main" in described["functions"]:
        # It may carry the decorator with another name; undecorated, the defaults are its limits.
        for policy in tasks.values():
            if policy.function == "main":
                return tasks, policy.name
        policy = make_policy(project.defaults, name="main", function="main", where=name, plain=True)
        _require_memory(policy, project.defaults, machine, name)
        tasks["main"] = policy
        return tasks, "main"
    if len(tasks) == 1:
        return tasks, next(iter(tasks))
    there = f"It has the tasks {', '.join(tasks)}." if tasks else "It has no tasks."
    functions = described["functions"]
    if functions:
        there += f" Its functions: {', '.join(functions[:20])}."
    raise ConfigError(
        f"{name} has no task to begin with: no task 'main', no function main(), no single task. {there}",
        hint=hint,
    )


def _require_memory(policy: Policy, options: Mapping[str, Any], machine: Machine, where: str) -> None:
    if policy.memory is not None and policy.memory < machine.smallest:
        raise ConfigError(f"{where}: ram={options['ram']!r}: {machine.needs}.")


def _describe(text: str, name: str, machine: Machine, source_map: str | None) -> dict[str, Any]:
    """Return what a file's syntax says. It is kept beside the compiled code, by a digest of the text."""
    key = (machine.key, name, text, source_map)
    if key in _descriptions:
        return _descriptions[key]
    told = jsontext.dumps(key).encode()
    note = f"tasks-{_blake2.blake2b(told, digest_size=32).hexdigest()}.json"
    kept = machine.store.note(note)
    if kept is None:
        kept = _read_syntax(text, name, machine, source_map)
        if len(kept) <= MAX_NOTE_BYTES:
            try:
                machine.store.put_note(note, kept)
            except OSError:
                # A full disk is no reason not to run.
                pass
    described: dict[str, Any] = jsontext.loads(kept)
    if len(_descriptions) >= _REMEMBERED:
        _descriptions.clear()
    _descriptions[key] = described
    return described


def _read_syntax(text: str, name: str, machine: Machine, source_map: str | None) -> bytes:
    setup = Setup(
        fuel=COMPUTE["LOW"] * 100,
        memory=_READING_MEMORY,
        deadline=time.monotonic() + _READING_SECONDS,
        folders=(),
        environment={},
        output=lambda _number, _data: None,
        answer=lambda _request, _instance: b'{"answer": null}',
    )
    request = jsontext.dumps({"op": "describe", "source": text, "path": name, "map": source_map}).encode()
    outcome = Instance(machine, setup).run(request)
    if outcome.kind != "answer":
        said = outcome.answer.decode("utf-8", "replace")
        raise ConfigError(
            f"{name} can't be read: its syntax is too much to take apart ({outcome.kind} {said})."
        )
    return outcome.answer
