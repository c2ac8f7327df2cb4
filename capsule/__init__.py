"""Task capsules, for programs: mark functions as tasks, and run files of them in a sandbox.

In a sandbox `task` makes a call start an instance of its own; here, outside of one, it changes nothing, so
that a file of tasks can be imported and tried like any other.
"""

from __future__ import annotations

import asyncio
import collections.abc
import sys
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from capsule_build.sandbox.sessions.session import Session, SessionError, run_javascript, run_python

__all__ = ["Session", "SessionError", "run", "run_javascript", "run_python", "task"]

_SESSIONS = ("Session", "SessionError", "run_javascript", "run_python")

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def task(name: Callable[_P, _R], /) -> Callable[_P, _R]: ...


@overload
def task(
    name: str | None = None,
    compute: str | int | None = None,
    ram: str | int | None = None,
    timeout: str | None = None,
    max_retries: int | None = None,
    allowed_files: Sequence[str | Mapping[str, str]] | None = None,
    allowed_hosts: Sequence[str] | None = None,
    env_variables: Sequence[str] | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...


def task(
    name: Callable[..., Any] | str | None = None,
    compute: str | int | None = None,
    ram: str | int | None = None,
    timeout: str | None = None,
    max_retries: int | None = None,
    allowed_files: Sequence[str | Mapping[str, str]] | None = None,
    allowed_hosts: Sequence[str] | None = None,
    env_variables: Sequence[str] | None = None,
) -> Any:
    """Mark a function as a task.

    Args:
        name: Default: the function's name.
        compute: `LOW`, `MEDIUM` (default), `HIGH`, or a number of units of fuel.
        ram: Bytes, as in `512MB`.
        timeout: As in `500ms`, `30s`, `5m`, `1h`.
        max_retries: How many more tries a failure gets.
        allowed_files: Folders that it may use, below the working folder.
        allowed_hosts: Hosts that it may send requests to.
        env_variables: Names of the environment variables that it gets.
    """
    if callable(name):
        return name

    del compute, ram, timeout, max_retries, allowed_files, allowed_hosts, env_variables

    def mark(function: Callable[_P, _R]) -> Callable[_P, _R]:
        return function

    return mark


async def run(
    file: str,
    args: Sequence[Any] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    mounts: Sequence[str] = (),
    packages: Sequence[str] = (),
    cwd: str = ".",
    shared_compute: bool = False,
    on_output: Callable[[int, bytes], None] | None = None,
    worker: bool = False,
    trace: bool = False,
    trust: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run a file's entry task in a sandbox and return its envelope.

    A file that can't be run gives an envelope too, with `config_error` or `wasm_error`; nothing is raised for
    it.

    Args:
        file: A source file, or a packed one (`.wasm`), relative to `cwd`.
        args: Positional arguments of the task.
        kwargs: Keyword arguments of the task.
        mounts: Folders to add, as `HOST[::GUEST][:ro|:rw]`.
        packages: Folders of installed packages.
        cwd: The working folder, which `allowed_files`, `.env` and `capsule.toml` are relative to.
        shared_compute: Whether nested tasks take their fuel from their caller's.
        on_output: Hears what the tasks print: 1 or 2, and bytes. Without, it goes to standard error.
        worker: Whether a worker of this process runs it (`capsule worker`, which is started by the first such
            call): each task then has a process of its own, and one that crashes ends no other. Cancelling the
            call ends the task.
        trace: Whether what becomes of the tasks is written into `.capsule/trace.db` of `cwd`.
        trust: Whose signature must be on the file, beside what `capsule.toml` asks for: by the keys that its
            `[trust]` has.

    Raises:
        UsageError: `args`, `mounts` or `packages` is no list, or `kwargs` no mapping.
    """
    _require_request(args, kwargs, mounts, packages)
    from capsule_build.sandbox.request import Request, attempt

    request = Request(
        file,
        list(args or ()),
        kwargs=dict(kwargs or {}),
        mounts=mounts,
        packages=packages,
        shared_compute=shared_compute,
        working=cwd,
        trace=trace,
        trust=trust,
    )

    if worker:
        from capsule_build.sandbox.worker.client import shared_worker

        return await shared_worker().run(request, on_output=on_output)

    def work() -> dict[str, Any]:
        return attempt(
            request,
            output=on_output or _to_standard_error,
            event=lambda _task, _state: None,
            say=lambda text: print(text, file=sys.stderr),
        )

    return await asyncio.to_thread(work)


def _require_request(args: Any, kwargs: Any, mounts: Any, packages: Any) -> None:
    """Refuse what is no request: a text is a sequence, too, but its characters are no arguments."""
    from capsule_build.runtime.errors import UsageError

    for name, value in (("args", args), ("mounts", mounts), ("packages", packages)):
        listed = isinstance(value, collections.abc.Sequence) and not isinstance(value, str | bytes)
        if not listed and (value is not None or name != "args"):
            raise UsageError(f"{name} must be a list, and not {value!r}.")
    for name, value in (("mounts", mounts), ("packages", packages)):
        if not all(isinstance(item, str) for item in value):
            raise UsageError(f"{name} must be a list of texts, and not {value!r}.")
    if kwargs is not None and not isinstance(kwargs, collections.abc.Mapping):
        raise UsageError(f"kwargs must be a mapping of names to values, and not {kwargs!r}.")


def _to_standard_error(_number: int, data: bytes) -> None:
    sys.stderr.buffer.write(data)
    sys.stderr.flush()


def __getattr__(name: str) -> Any:
    # Who only marks functions as tasks needs none of the sandbox.
    if name in _SESSIONS:
        from capsule_build.sandbox.sessions import session

        return getattr(session, name)
    raise AttributeError(f"module 'capsule' has no attribute '{name}'")
