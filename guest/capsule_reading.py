"""What a file says of its tasks, read from its syntax: no line of it is run for that."""

import ast
import binascii
import marshal

_MAX_COMPILED = 1 << 18
"""Characters of a source that is compiled ahead: what a larger one is compiled to would be kept by nobody."""

_OPTIONS = (
    "name",
    "compute",
    "ram",
    "timeout",
    "max_retries",
    "allowed_files",
    "allowed_hosts",
    "env_variables",
)


class _Problem(Exception):
    """The file says something of a task that the host can't know before it is run."""


def describe(source: str, path: str) -> dict:
    """Return `{"tasks": [...], "functions": [...], "code": text}`, or `{"problem": sentence}`.

    A task is `{"name", "function", "line", "options"}`, with the options as the file has them. The code is
    what the file is compiled to, in base64; or None.
    """
    try:
        tree = ast.parse(source, path)
        code = _compiled(tree, path) if len(source) <= _MAX_COMPILED else None
        body = list(_statements(tree.body))
        constants = _constants(body)
        functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        words = _Words(body)
        tasks = [
            _task(node, call, constants, path)
            for node in functions
            for call in node.decorator_list
            if words.mean_task(call.func if isinstance(call, ast.Call) else call)
        ]
    except SyntaxError as error:
        return {"problem": f"{path}, line {error.lineno}: {type(error).__name__}: {error.msg}"}
    except (RecursionError, MemoryError, ValueError) as error:
        return {"problem": f"{path}: it can't be read: {type(error).__name__}: {error}"}
    except _Problem as error:
        return {"problem": str(error)}
    return {"tasks": tasks, "functions": [node.name for node in functions], "code": code}


def _compiled(tree: ast.Module, path: str) -> str | None:
    try:
        code = compile(tree, path, "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        # Said when it is run, where it is the task's error.
        return None
    return binascii.b2a_base64(marshal.dumps(code), newline=False).decode()


def _statements(body):
    """All statements that the module itself runs, also those under `if` and `try`."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, name, ()))
            for handler in getattr(node, "handlers", ()):
                yield from _statements(handler.body)


def _constants(body) -> dict:
    """Names that the module gives a literal value, once."""
    values, count = {}, {}
    for node in body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                count[target.id] = count.get(target.id, 0) + (2 if isinstance(node, ast.AugAssign) else 1)
                values[target.id] = value
    return {name: value for name, value in values.items() if count[name] == 1 and value is not None}


class _Words:
    """By which words the file can mean the decorator."""

    def __init__(self, body) -> None:
        self.names, self.modules = set(), set()
        for node in body:
            if isinstance(node, ast.ImportFrom) and node.module == "capsule" and not node.level:
                self.names.update(alias.asname or alias.name for alias in node.names if alias.name == "task")
            elif isinstance(node, ast.Import):
                self.modules.update(
                    alias.asname or "capsule" for alias in node.names if alias.name == "capsule"
                )

    def mean_task(self, node) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.names
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "task"
            and isinstance(node.value, ast.Name)
            and node.value.id in self.modules
        )


def _task(node, call, constants: dict, path: str) -> dict:
    options = {}
    if isinstance(call, ast.Call):
        if len(call.args) > len(_OPTIONS) or any(isinstance(item, ast.Starred) for item in call.args):
            raise _Problem(f"{path}, line {call.lineno}: the options of @task must be written out.")
        given = list(zip(_OPTIONS, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None:
                raise _Problem(f"{path}, line {call.lineno}: the options of @task must be written out.")
            if keyword.arg not in _OPTIONS:
                raise _Problem(
                    f"{path}, line {call.lineno}: @task has no option '{keyword.arg}'; "
                    f"it has {', '.join(_OPTIONS)}."
                )
            given.append((keyword.arg, keyword.value))
        for name, value in given:
            options[name] = _literal(value, constants, name, path)
    name = options.pop("name", None)
    return {
        "name": node.name if name is None else name,
        "function": node.name,
        "line": node.lineno,
        "options": {key: value for key, value in options.items() if value is not None},
    }


def _literal(node, constants: dict, name: str, path: str):
    class Resolve(ast.NodeTransformer):
        def visit_Name(self, node):
            return constants.get(node.id, node)

    try:
        value = ast.literal_eval(Resolve().visit(node))
    except (ValueError, TypeError, RecursionError):
        raise _Problem(
            f"{path}, line {node.lineno}: '{name}' of @task must be a literal, or a name that the "
            "module gives a literal value once: the host reads it without running the file."
        ) from None
    return _plain(value, name, path, node.lineno)


def _plain(value, name: str, path: str, line: int):
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, name, path, line) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, name, path, line) for key, item in value.items()}
    raise _Problem(f"{path}, line {line}: '{name}' of @task can't be {value!r}.")
