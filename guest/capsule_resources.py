"""Data files of the task's packages, for `importlib.resources` and `pkgutil.get_data`."""

import io
from importlib.resources.abc import Traversable, TraversableResources

from capsule import _host


class Reader(TraversableResources):
    """The resources of one package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def files(self):
        return _Resource(self._package, "")


class _Resource(Traversable):
    def __init__(self, package: str, path: str) -> None:
        self._package, self._path = package, path

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2] or self._package.rpartition(".")[2]

    def _known(self):
        return _host.ask({"op": "data", "package": self._package, "path": self._path}) or {"kind": "none"}

    def is_dir(self) -> bool:
        return self._known()["kind"] == "folder"

    def is_file(self) -> bool:
        return self._known()["kind"] == "file"

    def iterdir(self):
        return (self.joinpath(name) for name in self._known().get("names", ()))

    def joinpath(self, *parts: str):
        path = "/".join([*filter(None, [self._path]), *map(str, parts)])
        return _Resource(self._package, path)

    __truediv__ = joinpath

    def read_bytes(self) -> bytes:
        return _host.content(self._known(), self._path)

    def read_text(self, encoding=None, errors="strict") -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors)

    def open(self, mode="r", *args, **kwargs):
        stream = io.BytesIO(self.read_bytes())
        return stream if "b" in mode else io.TextIOWrapper(stream, *args, **kwargs)
