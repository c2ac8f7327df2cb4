"""`capsule mcp`: serve the sandbox to agents that speak the Model Context Protocol."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from pathlib import Path  # noqa: TC003 (Typer reads it)
from typing import Annotated

import typer
from packaging.requirements import Requirement

from ...runtime.errors import UsageError
from .panels import TASKS


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("mcp", rich_help_panel=TASKS)(mcp)


def mcp(
    *,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A TOML file of limits and grants. See docs/mcp.md."),
    ] = None,
) -> None:
    """Serve MCP on standard input and output: tools that run code in a sandbox. Needs the extra 'mcp'."""
    try:
        from ...sandbox.mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UsageError("The package 'mcp' isn't installed.", hint=_how_to_install()) from None
    serve(config)


def _how_to_install() -> str:
    """Return the command that installs what the extra `mcp` names, in a checkout and elsewhere."""
    for line in importlib.metadata.requires("capsule-build") or ():
        needed = Requirement(line)
        if needed.name == "mcp":
            return shlex.join([sys.executable, "-m", "pip", "install", f"{needed.name}{needed.specifier}"])
    return shlex.join([sys.executable, "-m", "pip", "install", "mcp"])
