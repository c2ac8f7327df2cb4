"""`capsule build`: pack a file of tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from ...sandbox.packing import build as build_file
from ..output import Json, err, human_size, out, print_json
from ..sign import Key, Timeout, Token, TrustConfig, signing_options
from .panels import TASKS


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("build", rich_help_panel=TASKS)(build)


def build(
    *,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="A file of Python, JavaScript or TypeScript; default: capsule.toml's entrypoint.",
        ),
    ] = None,
    export: Annotated[
        bool,
        typer.Option("--export", help="Write the bundle, its digest, SBOM and provenance beside the source."),
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="Write them into this folder.")
    ] = None,
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign them as the identity that CI, a token or a browser gives.")
    ] = False,
    key: Key = None,
    identity_token: Token = None,
    trust_config: TrustConfig = None,
    timeout: Timeout = 30.0,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--packages", metavar="DIR", help="A folder of packages that tasks can import. Can be repeated."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack source, helpers, packages and policy into one file, and get the sandbox ready."""
    result = build_file(
        file,
        working=".",
        packages=packages or [],
        export=export,
        say=lambda text: err().print(text, markup=False),
        output=output,
        signing=signing_options(key, identity_token, trust_config, timeout)
        if sign or key or identity_token or trust_config
        else None,
    )
    if as_json:
        print_json(
            {
                "schema_version": "capsule.build.v1",
                "path": result.path,
                "sha256": result.sha256,
                "size": result.size,
                "entry": result.entry,
                "tasks": list(result.tasks),
                "modules": list(result.modules),
                "beside": list(result.beside),
                "signer": result.signer,
            }
        )
        return
    tasks = ", ".join(result.tasks)
    out().print(
        f"{result.path}  {human_size(result.size)}  tasks: {tasks}  sha256 {result.sha256}", markup=False
    )
    for path in result.beside:
        out().print(f"  {path}", markup=False)
    if result.signer is not None:
        out().print(f"Signed as {result.signer}.", markup=False)
