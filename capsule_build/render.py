"""Writes a build's context: the Dockerfile from its template, the scripts, and the inputs beside them."""

from __future__ import annotations

import os
import shutil
import traceback
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import jinja2

from .debian_archive import read_member
from .engine.protocol import LABEL
from .plan import Role
from .resources import licence_text, native_dir
from .runtime.errors import ContractError
from .runtime.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .inputs import ReadyInput
    from .plan import BuildPlan

_SHELL: Final = "build/busybox-static"
_NATIVE_SOURCES: Final = ("*.c", "*.h", "build.sh")


@dataclass(frozen=True)
class Context:
    """A build context on disk, and the Dockerfile in it."""

    folder: Path
    dockerfile: str


def dockerfile(plan: BuildPlan, names: Mapping[str, str], *, templates: Path) -> str:
    """Return the Dockerfile of a plan.

    Args:
        plan: The plan.
        names: The path of each input below the context's `inputs`, by the input's key.
        templates: The folder of templates.

    Raises:
        ContractError: The template is missing, malformed, or uses a variable that doesn't exist.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - a Dockerfile is not HTML
    )
    environment.filters["basename"] = lambda path: PurePosixPath(path).name
    try:
        text = environment.get_template(plan.recipe.template).render(
            manifest=plan.manifest,
            platform=str(plan.platform),
            root=plan.manifest.install_root,
            arch=plan.platform.architecture,
            libc=plan.platform.libc,
            runtimes={
                choice.name: {
                    "version": plan.versions[choice.name],
                    "series": choice.series,
                    "linked": choice.linked,
                }
                for choice in plan.recipe.runtimes
            },
            label=LABEL,
            inputs={key: f"inputs/{name}" for key, name in names.items()},
            base_inputs=[item.key for item in plan.inputs if item.role in {Role.SHIPPED, Role.LICENCES}],
        )
    except Exception as error:  # a template is a program: it can fail in any way
        raise ContractError(
            f"The template {_where(error, plan.recipe.template, templates)} can't be rendered: {error}.",
            hint=f"Templates are read from {templates}.",
        ) from error
    return text


def _where(error: Exception, template: str, templates: Path) -> str:
    """Return the template, perhaps an included one, and the line that an error comes from."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.name}, line {error.lineno}"
    # Jinja puts its templates' own names and lines into the traceback.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(templates):
            return f"{Path(frame.filename).relative_to(templates)}, line {frame.lineno}"
    return template


def render(plan: BuildPlan, inputs: Iterable[ReadyInput], folder: Path, *, templates: Path) -> Context:
    """Write the build context of a plan into an empty folder.

    Args:
        plan: The plan.
        inputs: The plan's inputs, with their verified files.
        folder: Where to write.
        templates: The folder of templates.

    Raises:
        ContractError: The template can't be rendered.
        InputError: The shell's package is malformed.
    """
    # What is taken from the licence list is taken when the tree is finished.
    ready = {item.planned.key: item for item in inputs if item.planned.role is not Role.SPDX}
    # Each file has a folder of its own, so that two of one name don't meet; what serves twice is there
    # once.
    places: dict[tuple[str, str], str] = {}
    for key, item in ready.items():
        places.setdefault((item.sha256, item.file), f"{key}/{item.file}")
    names = {key: places[item.sha256, item.file] for key, item in ready.items()}
    text = dockerfile(plan, names, templates=templates)
    beside = folder / "inputs"
    beside.mkdir()
    for key, item in ready.items():
        _link(item.path, beside / names[key])
    bootstrap = folder / "bootstrap"
    bootstrap.mkdir()
    shell = read_member(ready[_SHELL].path, "usr/bin/busybox")
    write_atomically(bootstrap / "busybox", shell, mode=0o755)
    _copy_tree(templates / "scripts", folder / "scripts", ("*.sh", "*.py"))
    _copy_tree(templates / "licences", folder / "licences", ("*.xz",))
    _copy_tree(native_dir(), folder / "native", _NATIVE_SOURCES)
    write_atomically(folder / "native" / "LICENSE", licence_text())
    write_atomically(folder / "Dockerfile", text.encode())
    return Context(folder, text)


def _link(source: Path, target: Path) -> None:
    """Put a file beside the Dockerfile without copying it, where the file systems allow that."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _copy_tree(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    # Modes and times are set here: engines' caches look at modes, and a checkout's depend on the umask.
    target.mkdir()
    for pattern in patterns:
        for path in sorted(source.glob(pattern)):
            write_atomically(target / path.name, path.read_bytes())
