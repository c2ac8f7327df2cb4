"""A whole warm build by the command line, against what the engine alone takes for the same Dockerfile."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

from capsule_build.cli.definitions import load_definitions
from capsule_build.fetch import Silence
from capsule_build.inputs import acquire
from capsule_build.plan import BuildOptions, make_plan
from capsule_build.recipes import load_recipes
from capsule_build.render import render
from capsule_build.resources import recipes_dir, templates_dir
from capsule_build.runtime.platforms import host_architecture

from .figures import Figure, alternate

if TYPE_CHECKING:
    from pathlib import Path

    from .bench import Bench

_LIBC = "musl"
_TEMPLATE = "capsule.Dockerfile.j2"
_STAGE = "FROM toolchain AS "
_MARK = "capsule-build.benchmark"


def measure(bench: Bench) -> list[Figure]:
    """With all layers in the engine's cache, and with those of the shell and the toolchain only."""
    recipes = _own_recipes(bench.folder / "recipes")
    context = _context(bench, recipes)
    template, dockerfile = recipes / "templates" / _TEMPLATE, context / "Dockerfile"

    def ours() -> None:
        bench.build(bench.folder / "built.tar.gz", "--libc", _LIBC, "--recipes", str(recipes))

    def engine_alone() -> None:
        bench.engine.build(context, tag=None, labels={}, on_line=lambda _line: None)

    def ours_anew() -> None:
        _mark_stages(template)
        ours()

    def engine_alone_anew() -> None:
        _mark_stages(dockerfile)
        engine_alone()

    against = f"{bench.engine.name} alone"
    anew = alternate(bench.runs, ours_anew, engine_alone_anew)
    warm = alternate(bench.runs, ours, engine_alone)
    return [
        Figure("build, inputs and toolchain cached", anew[0], against, anew[1], "s"),
        Figure("build, every layer cached", warm[0], against, warm[1], "s"),
    ]


def _own_recipes(folder: Path) -> Path:
    shutil.copytree(recipes_dir(), folder)
    shutil.copytree(templates_dir(), folder / "templates")
    return folder


def _mark_stages(path: Path) -> None:
    """Let every stage behind the toolchain begin with a label that no engine has seen."""
    label = f'LABEL {_MARK}="{uuid.uuid4().hex}"'
    lines = [line for line in path.read_text().splitlines() if _MARK not in line]
    marked = [f"{line}\n{label}" if line.startswith(_STAGE) else line for line in lines]
    path.write_text("\n".join(marked) + "\n")


def _context(bench: Bench, recipes: Path) -> Path:
    """Write the build context that the command line renders for the same recipe."""
    definitions = load_definitions(recipes)
    here = host_architecture()
    asked = BuildOptions(libc=_LIBC, architecture=here, build_architecture=here)
    plan = make_plan(load_recipes(recipes)["node24"], asked, definitions.pins, dist=bench.folder)
    scratch, context = bench.folder / "sources", bench.folder / "context"
    scratch.mkdir()
    context.mkdir()
    inputs = acquire(
        plan, definitions.components, cache=bench.cache, progress=Silence(), scratch=scratch, newer=True
    )
    return render(plan, inputs, context, templates=definitions.templates).folder
