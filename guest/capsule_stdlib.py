"""The standard library, kept in the snapshot as compiled modules: at run time there are no files."""

import importlib.abc
import importlib.machinery
import importlib.util
import marshal
import pathlib
import sys

# Without a use in a task, or without the C that they need; half of the size. Not compressed: that would
# double the compute that an import takes.
_LEFT_OUT = {
    "test",
    "_pyrepl",
    "curses",
    "sqlite3",
    "venv",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "pydoc_data",
    "turtle",
    "site-packages",
}


class _Kept(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads what was kept."""

    def __init__(self, modules: dict[str, tuple[bool, bytes]]) -> None:
        self._modules = modules

    def find_spec(self, fullname, path=None, target=None):
        found = self._modules.get(fullname)
        if found is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin="standard library", is_package=found[0])

    def create_module(self, spec):
        return None

    def exec_module(self, module) -> None:
        exec(marshal.loads(self._modules[module.__name__][1]), module.__dict__)


def _collect() -> dict[str, tuple[bool, bytes]]:
    # Where the standard library lies while the snapshot is made.
    top = pathlib.Path(importlib.util.find_spec("json").origin).parents[1]
    own = pathlib.Path(__file__).with_name("capsule_resources.py")
    code = compile(own.read_bytes(), own.name, "exec", dont_inherit=True)
    modules = {"capsule_resources": (False, marshal.dumps(code))}
    for path in sorted(top.rglob("*.py")):
        parts = path.relative_to(top).with_suffix("").parts
        if parts[0] in _LEFT_OUT or "tests" in parts or "idle_test" in parts:
            continue
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        code = compile(path.read_bytes(), f"<{name}>", "exec", dont_inherit=True)
        modules[name] = (package, marshal.dumps(code))
    return modules


def install() -> None:
    """Keep the standard library, and find it before anything else. Only while the snapshot is made."""
    sys.meta_path.insert(0, _Kept(_collect()))
