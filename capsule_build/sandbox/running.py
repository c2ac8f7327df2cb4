"""From a task's name to its envelope: tries, nested tasks, and what the guest may ask of the host.

A guest asks with one function, whose requests name no grants: `task`, `http`, `print`, `module`, `data`. Each
is answered by the policy of the task whose instance asks. That policy was settled before any of the file's
code ran.
"""

from __future__ import annotations

import _thread
import time

from ..runtime.errors import CapsuleError
from . import jsontext
from .grants import close_folders, open_folders
from .instance import Instance, Setup, answer
from .languages import JAVASCRIPT, PYTHON, language_of
from .machine import Machine
from .options import COMPUTE, MAX_FUEL, MAX_MEMORY, ConfigError
from .project import variables
from .records import Record
from .wasmtime_abi import WasmError

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Final

    from .grants import Mount
    from .instance import Outcome
    from .javascript.image import MemoryCarrier
    from .options import Policy
    from .source import TaskFile
    from .standby import Standby
    from .trace import Trace

MAX_DEPTH: Final = 32
"""How deep tasks may call each other. Each level has an instance, a thread and its memory."""

MAX_REQUESTS: Final = 1000
"""Requests to hosts that one task may make."""

ERROR_TYPES: Final = (
    "task_error",
    "timeout",
    "fuel_exhausted",
    "memory_exceeded",
    "permission_denied",
    "wasm_error",
    "config_error",
)
"""What `error_type` may be."""

_RETRIED: Final = {"task_error", "timeout", "fuel_exhausted", "memory_exceeded", "wasm_error"}
_NEARLY_FULL: Final = 0.9

_machines: dict[str, Machine] = {}
_making = _thread.allocate_lock()


class Context(Record):
    """What all tasks of one run have in common.

    Attributes:
        file: The file of tasks.
        machine: Where they run.
        working: The working folder: `allowed_files` and `.env` are relative to it.
        output: Hears what the tasks print: 1 or 2, and bytes.
        event: Hears a task's name and what became of it: pending, running, completed, failed.
        shared_compute: Whether nested tasks take their fuel from their caller's.
        trace: Where it is written what became of each; `None`: nowhere.
        begun: Hears of each instance before it runs, so that it can be cancelled.
        carrier: Of a run of a session in JavaScript: carries the guest's memory from run to run.
        standby: Has an instance ready for the entry task, where that is known before; `None`: it is made now.
    """

    file: TaskFile
    machine: Machine
    working: str
    output: Callable[[int, bytes], None]
    event: Callable[[str, str], None]
    shared_compute: bool = False
    trace: Trace | None = None
    begun: Callable[[Instance], None] | None = None
    carrier: MemoryCarrier | None = None
    standby: Standby | None = None


class Caller(Record):
    """The task that calls a nested one: its instance, its depth, when its time ends, its row in the trace."""

    instance: Instance
    depth: int
    deadline: float | None
    row: int | None = None


def machine(say: Callable[[str], None], language: str = PYTHON) -> Machine:
    """Return this process's machine for a language; made when it is first asked for.

    Raises:
        CapsuleError: It can't be.
    """
    with _making:
        if language not in _machines:
            if language == JAVASCRIPT:
                from .javascript.machine import make_machine

                _machines[language] = make_machine(answer, say)
            else:
                _machines[language] = Machine(answer, say=say)
        return _machines[language]


def run_entry(
    context: Context,
    args: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    mounts: Sequence[Mount] = (),
) -> dict[str, Any]:
    """Run a file's entry point and return its envelope.

    Args:
        context: The file, and what its tasks have in common.
        args: Positional arguments: anything that JSON can hold.
        kwargs: Keyword arguments.
        mounts: Folders that the entry task gets beside its own.
    """
    return _run(context, context.file.tasks[context.file.entry], list(args), dict(kwargs or {}), mounts, None)


def failure(name: str, kind: str, message: str) -> dict[str, Any]:
    """Return the envelope of a task that never ran."""
    return _envelope(name, None, {"error_type": kind, "message": message}, time.monotonic(), 0, 0, 0, [])


def _run(
    context: Context,
    policy: Policy,
    args: list[Any],
    kwargs: dict[str, Any],
    mounts: Sequence[Mount],
    caller: Caller | None,
) -> dict[str, Any]:
    start = time.monotonic()
    row = None
    if context.trace is not None:
        row = context.trace.begin(policy, None if caller is None else caller.row)
    context.event(policy.name, "pending")
    of_task = {
        "op": "run" if context.carrier is None else "piece",
        "task": policy.name,
        "function": policy.function,
        "plain": policy.plain,
        "args": args,
        "kwargs": kwargs,
    }
    preparation = None
    if context.machine.prepares:
        preparation = context.file.preparation()
    else:
        of_task |= {"source": context.file.source, "path": context.file.path}
    request = jsontext.dumps(of_task).encode()
    fuel = ram = retries = 0
    requests: list[dict[str, Any]] = []
    while True:
        context.event(policy.name, "running")
        result, error, outcome = _try(context, policy, preparation, request, mounts, caller, requests, row)
        fuel += outcome.fuel if outcome is not None else 0
        ram = max(ram, outcome.memory if outcome is not None else 0)
        late = caller is not None and caller.deadline is not None and time.monotonic() >= caller.deadline
        if error is None or error["error_type"] not in _RETRIED or retries >= policy.max_retries or late:
            break
        retries += 1
    context.event(policy.name, "completed" if error is None else "failed")
    envelope = _envelope(policy.name, result, error, start, retries, fuel, ram, requests)
    if context.trace is not None:
        context.trace.end(row, envelope)
    return envelope


def _envelope(
    name: str,
    result: Any,
    error: dict[str, str] | None,
    start: float,
    retries: int,
    fuel: int,
    ram: int,
    requests: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "success": error is None,
        "result": result,
        "error": error,
        "execution": {
            "task_name": name,
            "duration_ms": round((time.monotonic() - start) * 1000),
            "retries": retries,
            "fuel_consumed": fuel,
            "ram_used": ram,
            "host_requests": requests,
        },
    }


def _try(
    context: Context,
    policy: Policy,
    preparation: bytes | None,
    request: bytes,
    mounts: Sequence[Mount],
    caller: Caller | None,
    requests: list[dict[str, Any]],
    row: int | None,
) -> tuple[Any, dict[str, str] | None, Outcome | None]:
    try:
        option = "allowedFiles" if language_of(context.file.path) == JAVASCRIPT else "allowed_files"
        where = _named(option, policy, context.file)
        folders = open_folders(policy.folders, mounts, working=context.working, where=where)
        environment = variables(policy.variables, context.working)
    except ConfigError as error:
        return None, {"error_type": "config_error", "message": str(error)}, None
    deadline = None if policy.timeout_ms is None else time.monotonic() + policy.timeout_ms / 1000
    if caller is not None and caller.deadline is not None:
        deadline = caller.deadline if deadline is None else min(deadline, caller.deadline)
    fuel = policy.fuel
    if caller is not None and context.shared_compute:
        fuel = min(fuel, caller.instance.fuel_left())
    depth = 0 if caller is None else caller.depth + 1

    def serve(asked: bytes, instance: Instance) -> bytes:
        return _serve(context, policy, asked, Caller(instance, depth, deadline, row), requests)

    limits = fuel, policy.memory, deadline
    setup = Setup(*limits, folders, environment, context.output, serve, context.carrier, preparation)
    standby = context.standby if caller is None else None
    instance = Instance(context.machine, setup) if standby is None else standby.take(context.machine, setup)
    if context.begun is not None:
        context.begun(instance)
    try:
        if caller is not None:
            caller.instance.child = instance
            if caller.instance.stop is not None:
                instance.stop = caller.instance.stop
        outcome = instance.run(request)
    except WasmError as error:
        return None, {"error_type": "wasm_error", "message": error.message}, None
    finally:
        close_folders(folders)
        if caller is not None:
            caller.instance.child = None
    if caller is not None and context.shared_compute:
        # Of an instance that was stopped where it was, it isn't known how much it used: all that it had.
        used = fuel if outcome.kind in ("timeout", "cancelled") else outcome.fuel
        caller.instance.set_fuel(max(0, caller.instance.fuel_left() - used))
    result, error_ = _read(context, policy, fuel, outcome)
    return result, error_, outcome


def _named(option: str, policy: Policy, file: TaskFile) -> str:
    """Return how a message names an option: with its file and task, if what runs is no piece of a session."""
    return option if language_of(file.path) is None else f"{file.path}, {option} of the task '{policy.name}'"


def _read(context: Context, policy: Policy, fuel: int, outcome: Outcome) -> tuple[Any, dict[str, str] | None]:
    if outcome.kind == "answer":
        try:
            document = jsontext.loads_bounded(outcome.answer)
            if "result" in document:
                return document["result"], None
            kind, message = document["error"]["type"], document["error"]["message"]
            if kind in ERROR_TYPES and isinstance(message, str):
                return None, {"error_type": kind, "message": _explained(kind, message, policy)}
        except jsontext.TooMuchError as error:
            message = f"The task's result is too much: {error}. Return it as one text, which may be JSON."
            return None, {"error_type": "task_error", "message": message}
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        # Only a guest whose code has been changed by its task gives such an answer.
        return None, {"error_type": "wasm_error", "message": "The guest gave an answer that isn't one."}
    kind, message = _trap(context, policy, fuel, outcome)
    return None, {"error_type": kind, "message": message}


def _explained(kind: str, message: str, policy: Policy) -> str:
    if kind != "memory_exceeded":
        return message
    bound = policy.memory or MAX_MEMORY
    return f"{message}: the task may have {bound} bytes of memory.{_more_memory(bound)}"


def _more_compute(policy: Policy, fuel: int) -> str:
    if fuel < policy.fuel:
        return " That was left of its caller's, which they share."
    high = COMPUTE["HIGH"]
    more = f'compute="HIGH" ({high})' if fuel < high else f"compute={min(MAX_FUEL, 2 * fuel)}"
    return f" Give it more: {more}, or any number."


def _more_memory(bound: int) -> str:
    if bound >= MAX_MEMORY:
        return " No task can have more."
    return f' Give it more: ram="{min(MAX_MEMORY, 2 * bound) >> 20}MB".'


def _trap(context: Context, policy: Policy, fuel: int, outcome: Outcome) -> tuple[str, str]:
    reason = outcome.answer.decode("utf-8", "replace")
    if outcome.kind == "fuel":
        return "fuel_exhausted", f"The task used up its compute: {fuel} units.{_more_compute(policy, fuel)}"
    if outcome.kind == "timeout":
        limit = "its caller's time" if policy.timeout_ms is None else f"{policy.timeout_ms} ms"
        return "timeout", f"The task didn't end within {limit}."
    if outcome.kind == "cancelled":
        return "timeout", "The task was ended from outside."
    if outcome.kind == "exit":
        return "task_error", f"The task ended its interpreter with the status {reason}."
    bound = policy.memory or MAX_MEMORY
    if outcome.memory >= bound * _NEARLY_FULL:
        return (
            "memory_exceeded",
            f"The task needs more than its {bound} bytes of memory.{_more_memory(bound)}",
        )
    if "exceeds memory limit" in reason or "memory minimum size" in reason:
        where = _named("ram", policy, context.file)
        return "config_error", f"{where}: {bound} bytes are too few, and {context.machine.needs}."
    if "call stack exhausted" in reason:
        return "task_error", "The task's calls nest too deep for the stack."
    return "wasm_error", f"The interpreter of the task stopped: {reason}"


def _serve(
    context: Context, policy: Policy, asked: bytes, caller: Caller, requests: list[dict[str, Any]]
) -> bytes:
    try:
        given = _given(context, policy, jsontext.loads_bounded(asked), caller, requests)
    except PermissionError as error:
        return _refusal("permission", str(error))
    except TimeoutError as error:
        return _refusal("timeout", str(error) or "it took too long")
    except OSError as error:
        return _refusal("connection", str(error))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _refusal(
            "value", f"{error}" if isinstance(error, ValueError) else f"no such request: {error!r}"
        )
    except CapsuleError as error:
        return _refusal("error", error.message)
    if caller.deadline is not None and time.monotonic() >= caller.deadline:
        # Who waits for it may not have seen yet that its time is over.
        caller.instance.cancel("timeout")
    return jsontext.dumps({"answer": given}).encode()


def _given(
    context: Context, policy: Policy, request: Any, caller: Caller, requests: list[dict[str, Any]]
) -> Any:
    match request["op"]:
        case "task":
            return _nested(context, request, caller)
        case "http":
            return _http(policy, request, caller.deadline, requests)
        case "print":
            return context.output(
                2 if request["stream"] == 2 else 1, request["text"].encode("utf-8", "replace")
            )
        case "module":
            return context.file.modules.module(request["name"])
        case "data":
            return context.file.modules.data(request["package"], request["path"])
        case _:
            raise ValueError("the host has no such operation")


def _refusal(kind: str, message: str) -> bytes:
    return jsontext.dumps({"error": message, "kind": kind}).encode()


def _nested(context: Context, request: dict[str, Any], caller: Caller) -> dict[str, Any]:
    name, args, kwargs = request["name"], request["args"], request["kwargs"]
    if not (isinstance(name, str) and isinstance(args, list) and isinstance(kwargs, dict)):
        raise ValueError("a task is called by its name, with a list and a mapping of arguments")
    policy = context.file.tasks.get(name)
    if policy is None or policy.plain:
        raise ValueError(f"the file has no task '{name}' that could be read from it before it was run")
    if caller.depth + 1 >= MAX_DEPTH:
        return failure(name, "task_error", f"Tasks call each other more than {MAX_DEPTH} deep.")
    return _run(context, policy, args, kwargs, (), caller)


def _http(
    policy: Policy, request: dict[str, Any], deadline: float | None, requests: list[dict[str, Any]]
) -> dict[str, Any]:
    if not policy.hosts:
        raise PermissionError("the task has no allowed_hosts, so it can't make requests")
    if len(requests) >= MAX_REQUESTS:
        raise PermissionError(f"a task can make {MAX_REQUESTS} requests")
    from . import fetching

    try:
        return fetching.fetch(request, policy.hosts, deadline=deadline, record=requests)
    except fetching.RefusedError as error:
        raise PermissionError(str(error)) from error
