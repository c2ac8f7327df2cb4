"""A file of JavaScript or TypeScript: from its path to what can be run. What was made of it is kept."""

from __future__ import annotations

import _blake2
import os
import time

from .. import jsontext
from ..modules import packed
from ..options import ConfigError
from ..records import Record
from ..source import TaskFile, read_tasks
from . import program, witness

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from ..machine import Machine
    from ..project import Project

MAP_MODULE: Final = "source_map.py"
"""By which name the guest asks for the source map: it is what a module's text is for Python."""

MAX_NOTE_BYTES: Final = 16 << 20

_HINT: Final = 'Export one: export const main = task({ name: "main" }, ...).'


class Loaded(Record):
    """What can be run, and packed.

    Attributes:
        file: The tasks.
        own: Files that go along with a packed one.
        inputs: The files that it was made of, relative to its folder.
    """

    file: TaskFile
    own: dict[str, bytes]
    inputs: tuple[str, ...]


class Made(Record):
    """What is kept of a bundle: see `bundling.Text`."""

    own: str
    own_map: str
    code: str
    map: str
    inputs: tuple[str, ...]


def load_javascript(path: str, project: Project, machine: Machine, say: Callable[[str], None]) -> Loaded:
    """Read a file.

    Args:
        path: The file.
        project: The defaults of its tasks.
        machine: Reads its syntax, and runs it.
        say: Hears what takes its time.

    Raises:
        ConfigError: It isn't there, isn't JavaScript or TypeScript, imports what it can't, or what it says of
            its tasks can't be.
    """
    if not os.path.isfile(path):
        raise ConfigError(f"{path} is no file.")
    made = _made(path, machine, say)
    name = os.path.basename(path)
    tasks, entry = read_tasks(made.own, name, project, machine, source_map=made.own_map, hint=_HINT)
    own = {MAP_MODULE: made.map.encode()}
    return Loaded(TaskFile(name, made.code, tasks, entry, packed(own, {})), own, made.inputs)


def _made(path: str, machine: Machine, say: Callable[[str], None]) -> Made:
    store = machine.store
    real = os.path.realpath(path)
    told = jsontext.dumps([machine.key, program.bundler_key(), real]).encode()
    note = f"bundle-{_blake2.blake2b(told, digest_size=32).hexdigest()}.json"
    kept = store.note(note, limit=MAX_NOTE_BYTES)
    if kept is not None:
        try:
            document = jsontext.loads(kept)
        except ValueError:
            document = None
        if document is not None and witness.holds(document["witness"]):
            return Made(*document["made"])
    since = time.time_ns()
    from .bundling import bundle

    found = bundle(path, program.bundler(store, say))
    folder = os.path.dirname(real)
    inputs = tuple(os.path.relpath(item, folder) for item in found.whole.inputs)
    made = Made(found.own.code, found.own.map, found.whole.code, found.whole.map, inputs)
    seen = witness.watch((*found.own.inputs, *found.whole.inputs), folder)
    if witness.is_settled(seen, since):
        data = jsontext.dumps({"witness": seen, "made": list(made)}).encode()
        if len(data) <= MAX_NOTE_BYTES:
            try:
                store.put_note(note, data)
            except OSError:
                # A full disk is no reason not to run.
                pass
    return made
