"""What a run of a Python session is: a task, whose function is in the snapshot."""

from __future__ import annotations

import ast
import base64
import importlib
import io
import os
import pickle
import sys
import types
from typing import Any

_FOLDER = "/workspace"
_NO_RETURN = "'return' outside of a function: a run gives the value of its last expression"


class _NotPlainError(Exception):
    """A function or a class of the session itself, which `pickle` would only keep the name of."""


class _Plain(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, types.FunctionType | type) and value.__module__ == "__main__":
            raise _NotPlainError
        return NotImplemented


class _Session:
    """Stands for the session's module, which is another one in each run."""

    def __reduce__(self) -> Any:
        return importlib.import_module, ("__main__",)


class _Names:
    """Stands for the names of the session's module, which its functions look theirs up in."""

    def __reduce__(self) -> Any:
        return vars, (_Session(),)


def main(code: str, state: str | None, number: int, last: bool) -> dict[str, Any]:
    """Run a piece of code.

    Args:
        code: Its text.
        state: What the last run left, as this function gave it.
        number: Which run it is, for messages.
        last: Whether no other follows upon it.

    Returns:
        `state`, `value` (as text; `None`: there is none) and `lost` (names of what can't be kept); or
        `failed`.
    """
    os.chdir(_FOLDER)
    return _run(code, state, number, last)


def _run(code: str, state: str | None, number: int, last: bool) -> dict[str, Any]:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    path = f"<run {number}>"
    names = module.__dict__
    own = frozenset(names) | {"__builtins__"}
    if state is not None:
        names.update(pickle.loads(base64.b64decode(state)))
    try:
        value = _execute(code, path, names)
        text = None if value is None else repr(value)
    except BaseException as error:  # also SystemExit: what ends a run ends no session
        sys.stdout.flush()
        return {"failed": _told(error, path)}
    sys.stdout.flush()
    if last:
        return {"state": "", "value": text, "lost": []}
    kept, lost = _dump({name: item for name, item in names.items() if name not in own}, names)
    return {"state": base64.b64encode(kept).decode(), "value": text, "lost": lost}


def _execute(code: str, path: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(code, path)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        program = compile(tree, path, "exec")
        expression = None
        if isinstance(last, ast.Expr):
            expression = compile(ast.Expression(last.value), path, "eval")
    except SyntaxError as error:
        if "'return' outside function" in error.msg:
            error.msg = _NO_RETURN
        raise
    exec(program, names)
    return None if expression is None else eval(expression, names)


def _told(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    try:
        text = str(error)
    except Exception:
        text = ""
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{said} ({path}, line {lines[-1]})" if lines else said


def _dump(names: dict[str, Any], everything: dict[str, Any]) -> tuple[bytes, list[str]]:
    try:
        stream = io.BytesIO()
        _Plain(stream, pickle.HIGHEST_PROTOCOL).dump(names)
        return stream.getvalue(), []
    except Exception:
        # Its import takes longer than most runs.
        import cloudpickle

    def dumped(value: Any) -> bytes:
        stream = io.BytesIO()
        pickler = cloudpickle.Pickler(stream)
        pickler.globals_ref[id(everything)] = _Names()
        pickler.dump(value)
        return stream.getvalue()

    try:
        return dumped(names), []
    except Exception:
        kept, lost = {}, []
        for name, value in names.items():
            try:
                dumped(value)
                kept[name] = value
            except Exception:
                lost.append(name)
        return dumped(kept), lost


def rehearse() -> None:
    """Do what a run does, for the snapshot (see `capsule_guest`)."""
    main = sys.modules["__main__"]
    first = _run("x = 1\ntext = 'a'\nx * 2\n", None, 1, False)
    _run("x += 1; x", first["state"], 2, False)
    _run("def f():\n    return x\nx = [1, 2.5, {'a': None}]\nf()\n", None, 1, True)
    sys.modules["__main__"] = main
