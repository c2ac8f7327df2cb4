"""Imports of the task's own modules and packages, whose sources the host has."""

import builtins
import importlib.abc
import importlib.machinery
import linecache
import marshal
import sys
import types

from capsule import _host


class _FromHost(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds modules among those that the host holds ready for this task."""

    def find_spec(self, fullname, path=None, target=None):
        found = _host.ask({"op": "module", "name": fullname})
        if found is None:
            return None
        if found["kind"] == "extension":
            package = fullname.partition(".")[0]
            raise ImportError(
                f"'{package}' needs the C extension {found['path']}, which can't work in the sandbox: it is "
                "machine code of the host. Only packages of pure Python can be imported.",
                name=fullname,
            )
        package = found["kind"] == "package"
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=found["path"], is_package=package)
        spec.loader_state = found
        spec.has_location = True
        if package:
            spec.submodule_search_locations = [found["path"].rpartition("/")[0]]
        return spec

    def create_module(self, spec):
        return None

    def exec_module(self, module) -> None:
        found = module.__spec__.loader_state
        exec(_compile(found["source"], found["path"]), module.__dict__)

    def get_source(self, fullname):
        found = _host.ask({"op": "module", "name": fullname})
        return None if found is None else found.get("source")

    def get_data(self, path: str) -> bytes:
        return _host.data(path)

    def get_resource_reader(self, fullname):
        from capsule_resources import Reader

        return Reader(fullname)


def install() -> None:
    """Make the task's own modules importable, behind the standard library."""
    sys.meta_path.append(_FromHost())
    sys.path[:] = []
    sys.path_importer_cache.clear()


def _know_lines(source: str, path: str) -> None:
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)


def _compile(source: str, path: str):
    _know_lines(source, path)
    return compile(source, path, "exec", dont_inherit=True)


def prepare_main(path: str, source: str, compiled: bytes) -> types.CodeType | None:
    """Return the code of the task's file, where it was compiled before (as `capsule_reading` does it)."""
    _know_lines(source, path)
    return marshal.loads(compiled) if compiled else None


def load_main(path: str, source: str, code: types.CodeType | None) -> types.ModuleType:
    """Run the task's file as a module and return it."""
    name = path.rpartition("/")[2].removesuffix(".py")
    if name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier():
        # A task's file may have any name, also `capsule.py`; an import of that name means the other.
        name = "capsule_task_file"
    module = types.ModuleType(name)
    module.__file__ = path
    module.__builtins__ = builtins
    if code is None:
        code = _compile(source, path)
    sys.modules[name] = module
    exec(code, module.__dict__)
    return module
