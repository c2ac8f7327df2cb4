"""`capsule`, as a task sees it."""

import functools

from . import _host, http

__all__ = ["http", "task"]

_registered = {}


def task(
    name=None,
    compute=None,
    ram=None,
    timeout=None,
    max_retries=None,
    allowed_files=None,
    allowed_hosts=None,
    env_variables=None,
):
    """Mark a function as a task. Called from a task, it runs in an instance of its own and returns its
    envelope.

    The options count as the file has them: what they are when the file is run changes nothing.
    """
    if callable(name):
        return task()(name)

    def decorate(function):
        task_name = function.__name__ if name is None else name

        @functools.wraps(function)
        def call(*args, **kwargs):
            return _host.ask({"op": "task", "name": task_name, "args": list(args), "kwargs": kwargs})

        _registered[task_name] = function
        return call

    return decorate


def registered(name):
    """Return the function of a task, or None."""
    return _registered.get(name)


def forget():
    """Forget all tasks."""
    _registered.clear()


def run(*_args, **_kwargs):
    """Refuse: programs run tasks from outside."""
    raise RuntimeError("a task can't start capsules; it calls other tasks of its file by their names")
