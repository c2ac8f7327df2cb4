"""How the command lines of both commands are typed: the help and the usage line say it in the same words.

Typer shows a flag's type (`<bool>`), and puts brackets of its own around the arguments of a usage line. Here
a flag has no type, and an argument reads as its metavar says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

if TYPE_CHECKING:
    from collections.abc import Callable


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.get_params(ctx) if isinstance(param, TyperArgument)]
        return ["[OPTIONS]", *(param.display_name_raw for param in arguments)]


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class App(typer.Typer):
    """A Typer application, or a group of commands in one.

    Args:
        settings: As for `typer.Typer`.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return what adds a command, as `typer.Typer.command` does."""
        return super().command(name, cls=_Command, **settings)


def is_passed_on(param: object) -> bool:
    """Return whether a parameter is a command line of its own, which belongs behind a `--`."""
    return isinstance(param, TyperArgument) and (param.metavar or "").startswith("-- ")


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
            param.metavar = ""
    return params
