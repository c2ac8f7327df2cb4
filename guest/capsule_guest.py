"""The guest's side: one instance reads a file's tasks, or runs one of them. Made into a snapshot when it is
built.

Nothing here guards anything: the code of a task may change all of it. What a task may do is decided by the
host.
"""

import contextlib
import gc
import inspect
import json
import random
import sys
import traceback

import capsule_asyncio
import capsule_imports
import capsule_output
import capsule_reading
import capsule_stdlib
import capsule_urllib
import wit_world

import capsule

capsule_stdlib.install()
capsule_output.install()
capsule_asyncio.install()
capsule_urllib.install()


class WitWorld(wit_world.WitWorld):
    """The world of `task.wit`."""

    def call(self, request: str) -> str:
        """Answer the host's one request to this instance."""
        wanted = json.loads(request)
        if wanted["op"] == "describe":
            return json.dumps(capsule_reading.describe(wanted["source"], wanted["path"]))
        # Its state is in the snapshot: every run would draw the same numbers.
        random.seed()
        return _run(wanted)


def _run(wanted: dict) -> str:
    path = wanted["path"]
    sys.argv = [path, *map(str, wanted["args"])]
    try:
        # Whole before the answer is begun: a result that isn't JSON is an error of the task, and it ran once.
        return '{"result": ' + json.dumps(_result(wanted), allow_nan=False) + "}"
    except BaseException as error:
        return json.dumps({"error": _as_error(error, path)})
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def _result(wanted: dict) -> object:
    function = _function(wanted)
    if inspect.iscoroutinefunction(function):
        result = capsule_asyncio.run(function(*wanted["args"], **wanted["kwargs"]))
    else:
        result = function(*wanted["args"], **wanted["kwargs"])
    return result


def _function(wanted: dict):
    module = capsule_imports.load_main(wanted["path"], wanted["source"])
    registered = capsule.registered(wanted["task"])
    if registered is not None and not wanted["plain"]:
        return registered
    function = getattr(module, wanted["function"], None)
    if callable(function):
        return function
    raise LookupError(f"the file defines no {wanted['function']}() when it is run")


def _as_error(error: BaseException, path: str) -> dict:
    if isinstance(error, SystemExit):
        return {"type": "task_error", "message": f"The task ended itself: SystemExit({error.code!r})."}
    try:
        text = str(error)
    except Exception:
        text = ""
    kind = "task_error"
    if isinstance(error, MemoryError):
        kind = "memory_exceeded"
    elif isinstance(error, PermissionError):
        kind = "permission_denied"
    with contextlib.suppress(Exception):
        traceback.print_exception(error, limit=-50)
    where = ""
    if isinstance(error, SyntaxError):
        text = error.msg
        where = f" ({error.filename}, line {error.lineno})"
    elif not isinstance(error, MemoryError):
        lines = [
            line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == path
        ]
        where = f" ({path}, line {lines[-1]})" if lines else ""
    return {
        "type": kind,
        "message": f"{type(error).__name__}: {text}{where}" if text else type(error).__name__ + where,
    }


# Not when a task begins: to free what the snapshot's own imports left behind would touch many of its pages.
capsule_imports.install()

# What the snapshot holds is nobody's garbage: collections leave it alone, and so don't copy its pages.
gc.collect()
gc.freeze()
