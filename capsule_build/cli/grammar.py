"""How the command lines of both commands are typed: the help and the usage line say it in the same words.

Typer shows a flag's type (`<bool>`), and puts brackets of its own around the arguments of a usage line. Here
a flag has no type, and an argument reads as its metavar says. A help's lines are as long as the terminal, not
as the source has them. What is wrong is said by the command that it is about.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TASKS_WORDS: Final = "[ARGS]..."
"""The metavar of a task's arguments: those that begin with a dash belong behind a `--`."""

_HELP_OPTIONS: Final = ("--help", "-h")


class _Command(TyperCommand):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = _flowing(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _said_of(ctx, args):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.get_params(ctx) if isinstance(param, TyperArgument)]
        return ["[OPTIONS]", *(param.display_name_raw for param in arguments)]


class _Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _said_of(ctx, args):
            return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))


class App(typer.Typer):
    """A Typer application, or a group of commands in one.

    Args:
        settings: As for `typer.Typer`.
    """

    def __init__(self, **settings: Any) -> None:
        names = {"help_option_names": list(_HELP_OPTIONS)}
        super().__init__(cls=_Group, context_settings=names, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return what adds a command, as `typer.Typer.command` does."""
        return super().command(name, cls=_Command, **settings)


def is_passed_on(param: object) -> bool:
    """Return whether a parameter is a command line of its own, which belongs behind a `--`."""
    return isinstance(param, TyperArgument) and (param.metavar or "").startswith("-- ")


def is_of_a_command(option: str, group: object) -> bool:
    """Return whether an option that a group doesn't know is one that a command of it has."""
    commands = getattr(group, "commands", {}).values()
    return any(option in param.opts for command in commands for param in command.params)


def tasks_words_apart(context: Any, words: Sequence[str], option: str) -> list[str] | None:
    """Return a command line with a `--` before an option that its command doesn't know.

    Args:
        context: The command's.
        words: What stands behind its name.
        option: The option.

    Returns:
        The words; `None` where the option isn't a task's: the command runs none, or none is named before it.
    """
    params = context.command.get_params(context)
    arguments = [param for param in params if isinstance(param, TyperArgument)]
    if not arguments or arguments[-1].metavar != TASKS_WORDS:
        return None
    if any(option in param.opts for param in params):
        return None
    for at, word in enumerate(words):
        if not word.startswith(option):
            continue
        try:
            values, _, _ = context.command.make_parser(context).parse_args(list(words[:at]))
        except TyperException:
            # It is the value of an option before it.
            continue
        return [*words[:at], "--", *words[at:]] if values.get(arguments[0].name) else None
    return None


@contextlib.contextmanager
def _said_of(context: Any, args: Sequence[str]) -> Iterator[None]:
    """Let an error of a block know whose command line it is about, and its words; not all of Typer's do."""
    words = tuple(args)
    try:
        yield
    except TyperException as error:
        error.words = words  # type: ignore[attr-defined]  # a usage error's
        if getattr(error, "ctx", None) is None:
            error.ctx = context  # type: ignore[attr-defined]  # a usage error's
        raise


def _flowing(text: str | None) -> str | None:
    """Return a help text with a line for each paragraph."""
    if text is None:
        return None
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
            param.metavar = ""
    return params
