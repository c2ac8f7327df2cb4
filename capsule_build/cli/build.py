"""The commands that build: one for each recipe, `all`, and `plan`, which says what a build would do."""

from __future__ import annotations

import inspect
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from ..plan import BuildOptions, BuildPlan, make_plan
from ..recipes import check_libc
from ..resources import default_dist
from ..runtime.errors import CapsuleError, UsageError
from ..runtime.platforms import host_architecture
from ..sources import parse_sources
from . import options, panels
from .definitions import Definitions, load_definitions
from .grammar import App
from .output import Json, err, human_size, out, print_facts, print_json, print_table
from .workshop import open_workshop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..build import BuildResult
    from ..recipes import Recipe

SCHEMA_VERSION = "capsule-build.build.v1"


def register(app: typer.Typer, recipes: Mapping[str, Recipe], folder: Path) -> None:
    """Add a command for each recipe, and `all` and `plan`."""
    plan_app = App(no_args_is_help=True, help="Print what a build would do, and do nothing.")
    for recipe in recipes.values():
        _command(app, recipe, folder, _build_one, f"Build a capsule of {escape(recipe.title)}.", _BUILD_ONLY)
        _command(
            plan_app,
            recipe,
            folder,
            _print_plan,
            f"Print what a build of {escape(recipe.title)} would do.",
            (),
        )
    app.add_typer(plan_app, name="plan", rich_help_panel=panels.BUILD)

    @app.command("all", rich_help_panel=panels.BUILD)
    def build_all(
        container_cli: str = options.ENGINE,
        docker: str = options.DEPRECATED_ENGINE,
        newer_pins: bool = options.NEWER,
        keep: bool = options.KEEP,
        verbose: bool = options.VERBOSE,
        as_json: Json = False,
    ) -> None:
        """Build every recipe for every libc that can be built here."""
        definitions = load_definitions(folder, *recipes.values())
        plans = [
            make_plan(recipe, _options(libc), definitions.pins, dist=default_dist())
            for recipe in recipes.values()
            for libc in recipe.libcs
        ]
        values = {"newer_pins": newer_pins, "keep": keep, "verbose": verbose}
        _build(
            plans,
            definitions,
            options.engine_choice(container_cli, docker),
            values,
            as_json=as_json,
            go_on=True,
        )


_BUILD_ONLY = (
    ("container_cli", str, options.ENGINE),
    ("docker", str, options.DEPRECATED_ENGINE),
    ("newer_pins", bool, options.NEWER),
    ("keep", bool, options.KEEP),
    ("verbose", bool, options.VERBOSE),
)


def _command(
    app: typer.Typer,
    recipe: Recipe,
    folder: Path,
    act: Callable[..., None],
    help_text: str,
    more: tuple[tuple[str, Any, Any], ...],
) -> None:
    """Add a recipe's command, with just the options that the recipe has."""
    versions = [
        (
            f"version_{number}",
            str,
            typer.Option(
                None,
                choice.option,
                metavar=choice.form,
                help=f"Another exact version of {choice.name} than the pinned one.",
            ),
        )
        for number, choice in enumerate(recipe.runtimes)
    ]
    parameters: list[tuple[str, Any, Any]] = [
        (
            "output",
            Path,
            typer.Argument(
                None,
                metavar="[OUTPUT]",
                help="The bundle's path. Default: named after the capsule, in dist/.",
            ),
        ),
        (
            "libc",
            str,
            typer.Option(
                "glibc", "--libc", metavar="|".join(recipe.libcs), help="The libc of the target images."
            ),
        ),
        *versions,
        (
            "source",
            list[str],
            typer.Option(
                [],
                "--source",
                metavar="NAME=PATH",
                help="Your own file or folder in an input's place. Can be repeated.",
            ),
        ),
        (
            "epoch",
            int,
            typer.Option(
                None,
                "--epoch",
                metavar="SECONDS",
                parser=_seconds,
                help="Modification time of all members, in seconds since 1970.",
            ),
        ),
        *more,
        ("as_json", Json, False),
    ]

    def command(**values: Any) -> None:
        asked = {
            choice.name: values[f"version_{number}"]
            for number, choice in enumerate(recipe.runtimes)
            if values[f"version_{number}"] is not None
        }
        act(recipe, folder, asked, values)

    signature = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in parameters
    ]
    command.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {name: kind for name, kind, _ in parameters}
    app.command(recipe.id, help=help_text, rich_help_panel=panels.BUILD)(command)


def _seconds(text: str) -> int:
    # Typer's own words for what is no integer are a validator's.
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(
            f"--epoch '{text}' is not a number of seconds.",
            hint="They are counted since 1970: 'date +%s' prints those of now.",
        ) from error


def _options(libc: str, **more: Any) -> BuildOptions:
    return BuildOptions(
        libc=libc, architecture=host_architecture(), build_architecture=host_architecture(), **more
    )


def _plan(
    recipe: Recipe, asked: Mapping[str, str], values: Mapping[str, Any], definitions: Definitions
) -> BuildPlan:
    if values["epoch"] is not None and values["epoch"] < 0:
        raise UsageError("--epoch is a number of seconds since 1970, so it can't be negative.")
    build_options = _options(
        check_libc(recipe, values["libc"]),
        versions=asked,
        sources=parse_sources(values["source"]),
        epoch=values["epoch"],
        output=values["output"],
    )
    return make_plan(recipe, build_options, definitions.pins, dist=default_dist())


def _build_one(recipe: Recipe, folder: Path, asked: Mapping[str, str], values: Mapping[str, Any]) -> None:
    definitions = load_definitions(folder, recipe)
    choice = options.engine_choice(values["container_cli"], values["docker"])
    _build(
        [_plan(recipe, asked, values, definitions)], definitions, choice, values, as_json=values["as_json"]
    )


def _build(
    plans: list[BuildPlan],
    definitions: Definitions,
    choice: str | None,
    values: Mapping[str, Any],
    *,
    as_json: bool,
    go_on: bool = False,
) -> None:
    # The engines' packages take a while to import; what only plans or prints must not wait for them.
    from ..build import build, prepare_output
    from .progress import build_reporter

    console = err()
    for plan in plans:
        prepare_output(plan.output, may_make_folder=plan.options.output is None)
    results: list[BuildResult] = []
    failures: list[tuple[BuildPlan, CapsuleError]] = []
    with open_workshop(choice, definitions, newer=values["newer_pins"], keep=values["keep"]) as shop:
        for plan in plans:
            console.print(
                f"[bold]{plan.manifest.runtime_id} {plan.manifest.runtime_version}[/] for {plan.platform}"
            )
            began = time.monotonic()
            try:
                with build_reporter(console, verbose=values["verbose"]) as report:
                    results.append(build(plan, shop, report))
            except CapsuleError as error:
                if not go_on:
                    raise
                failures.append((plan, error))
            else:
                console.print(f"Done in {time.monotonic() - began:.1f} s.")
    _print_results(results, failures, as_json=as_json)


def _print_results(
    results: list[BuildResult], failures: list[tuple[BuildPlan, CapsuleError]], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "schema_version": SCHEMA_VERSION,
                "bundles": [
                    {
                        "path": str(result.plan.output),
                        "sha256": result.packed.sha256,
                        "size": result.packed.size,
                        "members": result.packed.members,
                        "runtime": {
                            "id": result.plan.manifest.runtime_id,
                            "version": result.plan.manifest.runtime_version,
                        },
                        "platform": str(result.plan.platform),
                        "smoke": [tool.to_json() for tool in result.smoke],
                    }
                    for result in results
                ],
                "failures": [
                    {"path": str(plan.output), "error": error.message, "exit_code": error.exit_code}
                    for plan, error in failures
                ],
            }
        )
    else:
        print_bundles(
            [(str(item.plan.output), human_size(item.packed.size), item.packed.sha256) for item in results]
        )
    if failures:
        first = failures[0][1]
        names = "\n".join(
            f"  {plan.manifest.runtime_id} {plan.platform}: {error.message}" for plan, error in failures
        )
        failed = CapsuleError(
            f"{len(failures)} of {len(failures) + len(results)} builds failed:\n{names}", hint=first.hint
        )
        raise failed


def print_bundles(rows: Sequence[tuple[str, str, str]]) -> None:
    """Print bundles: path, size and SHA-256.

    On a terminal each of these has a line, for what is folded in a cell can't be copied; elsewhere a bundle.
    """
    names = ("bundle", "size", "sha256")
    if not out().is_terminal:
        if rows:
            print_table(names, rows)
        return
    for row in rows:
        print_facts(zip(names, row, strict=True))


def _print_plan(recipe: Recipe, folder: Path, asked: Mapping[str, str], values: Mapping[str, Any]) -> None:
    plan = _plan(recipe, asked, values, load_definitions(folder, recipe))
    if values["as_json"]:
        print_json(plan_json(plan))
        return
    console = out()
    console.print(
        f"[bold]{escape(recipe.title)}[/]: {recipe.id} {plan.manifest.runtime_version} for {plan.platform}\n"
        f"bundle        {escape(str(plan.output))}\n"
        f"install root  {plan.manifest.install_root}\n"
        f"tools         {' '.join(plan.manifest.tools)}\n"
        f"epoch         {plan.epoch}\n"
    )
    rows = []
    for item in plan.inputs:
        if item.pin is not None:
            what, digest = item.pin.reference, item.pin.sha256[:16]
        elif item.source is not None:
            what, digest = f"your own: {item.source}", "as it is"
        else:
            what, digest = f"{item.name} {item.version}, not pinned", "looked up"
        rows.append((item.name, item.role.value, what, digest))
    print_table(("input", "role", "from", "sha256"), rows)


def plan_json(plan: BuildPlan) -> dict[str, Any]:
    """Return a plan for machines."""
    return {
        "schema_version": "capsule-build.plan.v1",
        "recipe": plan.recipe.id,
        "output": str(plan.output),
        "epoch": plan.epoch,
        "manifest": json.loads(plan.manifest.to_bytes()),
        "inputs": [
            {
                "name": item.name,
                "component": item.component,
                "role": item.role.value,
                "version": item.version,
                "reference": item.pin.reference if item.pin else None,
                "file": item.pin.file if item.pin else None,
                "sha256": item.pin.sha256 if item.pin else None,
                "source": str(item.source) if item.source else None,
            }
            for item in plan.inputs
        ],
    }
