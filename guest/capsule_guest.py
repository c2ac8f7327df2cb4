"""The guest's side: one instance reads a file's tasks, or runs one of them. Made into a snapshot when it is
built.

Nothing here guards anything: the code of a task may change all of it. What a task may do is decided by the
host.
"""

import binascii
import contextlib
import gc
import inspect
import linecache
import sys
import traceback
import types

import capsule_asyncio
import capsule_imports
import capsule_json
import capsule_output
import capsule_reading
import capsule_session
import capsule_stdlib
import capsule_urllib
import wit_world

import capsule

capsule_stdlib.install()
capsule_output.install()
capsule_asyncio.install()
capsule_urllib.install()

_file = []
"""The task's file, prepared: its path, its source and its code (see `capsule_imports.prepare_main`)."""


class WitWorld(wit_world.WitWorld):
    """The world of `task.wit`."""

    def call(self, request: str) -> str:
        """Answer the host: it has a file described; or it has one prepared, and then a task of it run."""
        head, _, rest = request.partition("\n")
        wanted = capsule_json.loads(head)
        match wanted["op"]:
            case "describe":
                return capsule_json.dumps(capsule_reading.describe(wanted["source"], wanted["path"]))
            case "prepare":
                _prepare(wanted, rest)
                return "{}"
            case _:
                return _run(wanted, *_file)


def _prepare(wanted: dict, rest: str) -> None:
    """Do all that can be done before the task's arguments are known, and run nothing of its file.

    `random` has been seeded by then: componentize-py does that in an instance's first call.
    """
    path, size = wanted["path"], wanted["code"]
    # Behind the line of JSON: the code, a character a byte, and the source. JSON would take longer.
    code, source = rest[:size], rest[size:]
    _file[:] = path, source, capsule_imports.prepare_main(path, source, code.encode("latin-1"))


def _run(wanted: dict, path: str, source: str, code: types.CodeType | None) -> str:
    sys.argv = [path, *map(str, wanted["args"])]
    try:
        # Whole before the answer is begun: a result that isn't JSON is an error of the task, and it ran once.
        function = _function(wanted, capsule_imports.load_main(path, source, code))
        return '{"result": ' + capsule_json.dumps(_result(function, wanted), allow_nan=False) + "}"
    except BaseException as error:
        return capsule_json.dumps({"error": _as_error(error, path)})
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:  # noqa: SIM105 (`contextlib.suppress` takes longer than all else here)
                stream.flush()
            except Exception:
                pass


def _result(function, wanted: dict) -> object:
    if _waits(function):
        result = capsule_asyncio.run(function(*wanted["args"], **wanted["kwargs"]))
    else:
        result = function(*wanted["args"], **wanted["kwargs"])
    return result


def _waits(function) -> bool:
    if type(function) is types.FunctionType and not function.__dict__:
        # What `inspect` says of most functions, without its detours.
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(function)


def _function(wanted: dict, module: types.ModuleType):
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


_REHEARSALS = 40
_REHEARSED = """from capsule import task

@task(name="main", compute="LOW")
def main(*args, **kwargs):
    return [*args, *kwargs]
"""


def _rehearse() -> None:
    """Run what every task runs, until CPython has it specialised: in the snapshot, not in each instance anew.

    An instance then writes less into the memory that it has of the snapshot: fewer of its pages are copied.
    """
    guest = WitWorld()
    of_file = {"source": _REHEARSED, "path": "rehearsal.py"}
    run = {"op": "run", "task": "main", "function": "main", "plain": False, "args": [1, "text"], "kwargs": {}}
    for _ in range(_REHEARSALS):
        described = capsule_json.loads(guest.call(capsule_json.dumps({"op": "describe", **of_file})))
        code = binascii.a2b_base64(described["code"]).decode("latin-1")
        head = {"op": "prepare", "path": of_file["path"], "code": len(code)}
        guest.call("\n".join([capsule_json.dumps(head), code + of_file["source"]]))
        guest.call(capsule_json.dumps(run))
        capsule_session.rehearse()
        del sys.modules["rehearsal"]
        capsule.forget()
    linecache.clearcache()
    _file.clear()
    sys.argv[:] = []


# Not when a task begins: to free what the snapshot's own imports left behind would touch many of its pages.
capsule_imports.install()
_rehearse()

# What the snapshot holds is nobody's garbage: collections leave it alone, and so don't copy its pages.
gc.collect()
gc.freeze()
