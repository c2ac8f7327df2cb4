"""`capsule run` and `capsule exec` for Typer, which has them for their help and their errors."""

from __future__ import annotations

from typing import Annotated

import typer

from ..grammar import TASKS_WORDS
from ..verifiers import Builder, Identity, Issuer, PublicKey, TrustRoot, words_of
from .arguments import Arguments
from .execute import execute
from .panels import TASKS

_Args = Annotated[
    list[str] | None,
    typer.Argument(
        metavar=TASKS_WORDS, help="The task's arguments; those that begin with a dash behind '--'."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the envelope alone on standard output.")]
_Verbose = Annotated[bool, typer.Option("--verbose", help="Tell each task's life on standard error.")]
_Mount = Annotated[
    list[str] | None,
    typer.Option(
        "--mount",
        metavar="HOST[::GUEST][:ro|:rw]",
        help="Give the entry task another folder. Can be repeated.",
    ),
]
_ArgsFile = Annotated[
    str | None, typer.Option("--args-file", metavar="FILE", help="Read arguments from a JSON list, too.")
]
_Packages = Annotated[
    list[str] | None,
    typer.Option(
        "--packages", metavar="DIR", help="A folder of packages that tasks can import. Can be repeated."
    ),
]
_Shared = Annotated[
    bool, typer.Option("--shared-compute", help="Nested tasks take their compute from their caller's.")
]

_Trace = Annotated[
    bool, typer.Option("--trace", help="Write what becomes of the tasks into the trace: see 'capsule log'.")
]


_Lock = Annotated[
    str | None,
    typer.Option(
        "--lock", metavar="FILE", help="The registry lock that has the NAME, as for 'capsule fetch'."
    ),
]
_DataDir = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="Where bundles are kept, as for 'capsule fetch'."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("run", rich_help_panel=TASKS)(run)
    app.command("exec", rich_help_panel=TASKS)(exec_)


def run(
    *,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="A file of Python, JavaScript or TypeScript; default: capsule.toml's entrypoint.",
        ),
    ] = None,
    args: _Args = None,
    as_json: _Json = False,
    verbose: _Verbose = False,
    mount: _Mount = None,
    args_file: _ArgsFile = None,
    packages: _Packages = None,
    shared_compute: _Shared = False,
    trace: _Trace = False,
) -> None:
    """Run a file's entry task in a sandbox. Exit code: 0 it succeeded, 1 it failed, 2 it can't be run."""
    _run("run", file, args, as_json, verbose, mount, args_file, packages, shared_compute, trace)


def exec_(
    *,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME", help="A packed file (.wasm), or the name of a task in the registry lock."
        ),
    ],
    args: _Args = None,
    as_json: _Json = False,
    verbose: _Verbose = False,
    mount: _Mount = None,
    args_file: _ArgsFile = None,
    shared_compute: _Shared = False,
    trace: _Trace = False,
    identity: Identity = None,
    issuer: Issuer = None,
    public_key: PublicKey = None,
    trust_root: TrustRoot = None,
    builder: Builder = None,
    lock: _Lock = None,
    data_dir: _DataDir = None,
) -> None:
    """Run a packed file's entry task, with the limits and grants that it was packed with.

    With --public-key, or --identity and --issuer, nothing of it is looked into before its signature holds.
    """
    trust = words_of(identity, issuer, public_key, trust_root, builder)
    _run(
        "exec",
        file,
        args,
        as_json,
        verbose,
        mount,
        args_file,
        None,
        shared_compute,
        trace,
        trust,
        lock,
        data_dir,
    )


def _run(
    command: str,
    file: str | None,
    args: list[str] | None,
    as_json: bool,
    verbose: bool,
    mount: list[str] | None,
    args_file: str | None,
    packages: list[str] | None,
    shared_compute: bool,
    trace: bool,
    trust: dict[str, str] | None = None,
    lock: str | None = None,
    data_dir: str | None = None,
) -> None:
    arguments = Arguments(
        command,
        file,
        tuple(args or ()),
        as_json,
        verbose,
        shared_compute,
        tuple(mount or ()),
        args_file,
        tuple(packages or ()),
        trace,
        trust,
        lock,
        data_dir,
    )
    raise typer.Exit(execute(arguments))
