"""Options that several commands have."""

from __future__ import annotations

import typer

from ..runtime.errors import UsageError

ENGINES = ("docker", "podman")

ENGINE = typer.Option(
    None,
    "--container-cli",
    metavar="|".join(ENGINES),
    help="The engine. Default: Docker, or Podman where only that answers.",
)
DEPRECATED_ENGINE = typer.Option(None, "--docker", hidden=True, metavar="|".join(ENGINES))
NEWER = typer.Option(
    False,
    "--newer-pins",
    help="Where a pinned Debian version is gone from the mirror, take its current one, by the signed index.",
)
KEEP = typer.Option(
    False, "--keep", help="Keep a failed build's containers and log, and say how to look into them."
)
VERBOSE = typer.Option(False, "--verbose", help="Show the engine's whole log, not only its steps.")


def engine_choice(container_cli: str | None, docker: str | None) -> str | None:
    """Return the engine that `--container-cli`, or its deprecated alias `--docker`, names.

    Raises:
        UsageError: They differ, or name no engine.
    """
    if container_cli and docker and container_cli != docker:
        raise UsageError(
            f"--container-cli {container_cli} and --docker {docker} differ.", hint="Give the first alone."
        )
    choice = container_cli if container_cli is not None else docker
    if choice is not None and choice not in ENGINES:
        raise UsageError(f"--container-cli '{choice}' is not an engine: {' or '.join(ENGINES)}.")
    return choice
