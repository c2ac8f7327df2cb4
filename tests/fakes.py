"""A small world to build in, without an engine or a network.

Its recipe is "tiny", whose inputs lie in a cache already; an engine "builds" by handing out a tree that was
given to it, and answers a smoke test as it is told; and a reporter listens.
"""

from __future__ import annotations

import io
import os
import shlex
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from capsule_build.build import Workshop
from capsule_build.cli.definitions import load_definitions
from capsule_build.engine.protocol import EngineInfo, Outcome
from capsule_build.plan import BuildOptions, BuildPlan, make_plan
from capsule_build.recipes import load_recipe
from capsule_build.sbom import native_version
from tests.tiny_recipe import (
    INNER_VERSION,
    TOOL_VERSION,
    can_be_run,
    filled_cache,
    recipe_folder,
    tiny_tree,
    write_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pytest

    from capsule_build.engine.protocol import ContainerSpec
    from capsule_build.pins import Pin


def detach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let builds of a `World` ask nothing of this machine: no mirror, disk or git."""
    for variable in ("CAPSULE_SOURCE_MIRROR", "CAPSULE_DEBIAN_MIRROR"):
        monkeypatch.delenv(variable, raising=False)
    # What reaches the disk before a crash is no matter here, and takes most of the time.
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    monkeypatch.setattr("capsule_build.record.source_of", lambda _checkout: None)


class FakeReporter:
    """A `Reporter` that keeps what it hears, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.bytes_packed = 0

    @property
    def steps(self) -> list[str]:
        return [text.removeprefix("step: ") for text in self.heard if text.startswith("step: ")]

    def started(self, pin: Pin) -> None:
        self.heard.append(f"started: {pin.component}")

    def advanced(self, pin: Pin, bytes_done: int) -> None:
        self.heard.append(f"advanced: {pin.component} {bytes_done}")

    def finished(self, pin: Pin) -> None:
        self.heard.append(f"finished: {pin.component}")

    def note(self, text: str) -> None:
        self.heard.append(f"note: {text}")

    def step(self, text: str) -> None:
        self.heard.append(f"step: {text}")

    def log(self, line: str) -> None:
        self.heard.append(f"log: {line}")

    def packed(self, size: int) -> None:
        self.bytes_packed += size


def tiny_answers() -> dict[str, tuple[str, int]]:
    """What the tiny capsule's tools print, by the last component of their paths, and their exit status."""
    return {
        "tool": (f"tool {TOOL_VERSION} with inner {INNER_VERSION}", 0),
        "seal-tree": (f"seal-tree {native_version()}", 0),
        "capsule-exec": (f"capsule-exec {native_version()}", 0),
    }


@dataclass
class FakeEngine:
    """An engine in memory. What is kept on purpose by a real one (images, containers) is kept here too.

    Attributes:
        files: The tree that a build "makes", by the names below the install root.
        answers: What each program of a smoke test prints, and its exit status.
        failures: Raised when an operation begins: `build`, `build-bare` (the smoke's image), `create`,
            `copy_out`, `copy_in`, `start`, `info`, `remove_container`.
        log_lines: What a build prints.
        links: Symbolic links of the tree, with their targets.
        outcome: What the smoke's container leaves, in place of the answers.
    """

    files: dict[str, bytes] = field(default_factory=tiny_tree)
    answers: dict[str, tuple[str, int]] = field(default_factory=tiny_answers)
    failures: dict[str, BaseException] = field(default_factory=dict)
    log_lines: Sequence[str] = ("Step 1/2", "Step 2/2")
    links: dict[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None
    name: str = "fake"
    calls: list[str] = field(default_factory=list)
    specs: list[ContainerSpec] = field(default_factory=list)
    containers: dict[str, dict[str, bytes]] = field(default_factory=dict)
    contexts: list[dict[str, bytes]] = field(default_factory=list)
    build_options: list[dict[str, object]] = field(default_factory=list)
    closed: bool = False

    def _begin(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.failures:
            raise self.failures[operation]

    def info(self) -> EngineInfo:
        self._begin("info")
        return EngineInfo("fake", "1.0", "2.0", "3.0", "memory", "/nowhere", "none", "x86_64", False, "here")

    def build(
        self,
        context: Path,
        *,
        tag: str | None,
        labels: Mapping[str, str],
        use_cache: bool = True,
        keep: bool = False,
        on_line: Callable[[str], None],
    ) -> str:
        files = {
            path.relative_to(context).as_posix(): path.read_bytes()
            for path in sorted(context.rglob("*"))
            if path.is_file()
        }
        self.contexts.append(files)
        self.build_options.append({"tag": tag, "labels": dict(labels), "use_cache": use_cache, "keep": keep})
        for line in self.log_lines:
            on_line(line)
        self._begin("build-bare" if labels else "build")
        return f"sha256:{len(self.contexts):064x}"

    def create(self, spec: ContainerSpec, *, name: str) -> str:
        self.specs.append(spec)
        self.containers[name] = {}
        self._begin("create")
        return name

    def copy_in(self, container: str, path: str, tar: Iterable[bytes]) -> None:
        self._begin("copy_in")
        assert path == "/"
        with tarfile.open(fileobj=io.BytesIO(b"".join(tar))) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isreg() else None
                self.containers[container][f"/{member.name}"] = b"" if stream is None else stream.read()

    def copy_out(self, container: str, path: str) -> Generator[bytes, None, None]:
        assert container in self.containers
        pieces = tree_stream(path.rpartition("/")[2], self.files, self.links)
        yield next(pieces)
        # An engine fails in the middle of its stream.
        self._begin("copy_out")
        yield from pieces

    def start(self, container: str, timeout: float) -> Outcome:
        self._begin("start")
        shell, option, script = self.specs[-1].argv
        assert option == "-c"
        assert shell in self.containers[container], "the smoke's shell isn't in the container"
        if self.outcome is not None:
            return self.outcome
        return Outcome(0, b"".join(map(self._run_line, script.splitlines())), b"")

    def _run_line(self, line: str) -> bytes:
        """Do what a line of the script does: a mark, what a program prints, the mark and its status."""
        words = shlex.split(line)
        mark = words[2].rstrip(";")
        printed, code = self.answers[words[3].rpartition("/")[2]]
        return f"{mark}\n{printed}\n\n{mark} {code}\n".encode()

    def remove_container(self, container: str) -> None:
        self._begin("remove_container")
        self.containers.pop(container, None)

    def remove_image(self, image: str) -> None:
        self._begin("remove_image")

    def has_image(self, reference: str) -> bool:
        self._begin("has_image")
        return reference == "localhost/there:latest"

    def pull(self, reference: str) -> None:
        self._begin("pull")

    def prune_build_cache(self) -> None:
        self._begin("prune_build_cache")

    def close(self) -> None:
        self.closed = True


def tree_stream(top: str, files: Mapping[str, bytes], links: Mapping[str, str]) -> Iterator[bytes]:
    """Yield a tar as an engine copies it out: below `top`, with its own owners, modes and times."""
    folders = {
        "/".join(parts[:depth])
        for parts in (name.split("/") for name in (*files, *links))
        for depth in range(1, len(parts))
    }
    for name in ["", *sorted(folders)]:
        member = tarfile.TarInfo(f"{top}/{name}".rstrip("/"))
        member.type, member.mode, member.uid, member.mtime = tarfile.DIRTYPE, 0o700, 1000, 12345
        yield member.tobuf()
    for name, data in files.items():
        member = tarfile.TarInfo(f"{top}/{name}")
        member.mode = 0o4711 if can_be_run(name) else 0o600
        member.size, member.uid, member.mtime = len(data), 1000, 12345
        yield member.tobuf() + data + bytes(-len(data) % 512)
    for name, target in links.items():
        member = tarfile.TarInfo(f"{top}/{name}")
        member.type, member.linkname = tarfile.SYMTYPE, target
        yield member.tobuf()
    yield bytes(1024)


@dataclass
class World:
    """A recipe folder, a filled cache, an engine and a reporter: all that a build takes."""

    folder: Path
    engine: FakeEngine = field(default_factory=FakeEngine)
    report: FakeReporter = field(default_factory=FakeReporter)
    keep: bool = False
    newer: bool = False

    def __post_init__(self) -> None:
        recipe_folder(self.recipes)
        self.cache = filled_cache(self.folder / "cache")
        self.dist.mkdir()

    @property
    def recipes(self) -> Path:
        return self.folder / "recipes"

    @property
    def dist(self) -> Path:
        return self.folder / "dist"

    @property
    def tree(self) -> Path:
        """Where a test that describes a capsule's tree lays one (see `with_tree`)."""
        return self.folder / "tree"

    def with_tree(self) -> World:
        """Lay the tree that a build would make of the recipe."""
        write_tree(self.tree, {"agentcompass-capsule.json": b"{}", **tiny_tree()})
        return self

    @property
    def shop(self) -> Workshop:
        definitions = load_definitions(self.recipes)
        return Workshop(
            engine=self.engine,
            components=definitions.components,
            pins=definitions.pins,
            cache=self.cache,
            templates=definitions.templates,
            newer=self.newer,
            keep=self.keep,
        )

    def plan(
        self,
        *,
        libc: str = "glibc",
        output: Path | None = None,
        versions: Mapping[str, str] | None = None,
        sources: Mapping[str, Path] | None = None,
        build_architecture: str = "x86_64",
    ) -> BuildPlan:
        options = BuildOptions(
            libc=libc,
            architecture="x86_64",
            build_architecture=build_architecture,
            versions=versions or {},
            sources=sources or {},
            output=output,
        )
        recipe = load_recipe(self.recipes / "tiny.toml")
        return make_plan(recipe, options, load_definitions(self.recipes).pins, dist=self.dist)

    def left_over(self) -> list[str]:
        """What lies in the output's folder and in the cache's staging area."""
        staging = self.cache.root / "staging"
        found = [*self.dist.rglob("*"), *staging.rglob("*")]
        return sorted(path.relative_to(self.folder).as_posix() for path in found)
