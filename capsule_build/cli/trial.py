"""`test BUNDLE IMAGE`: runs every tool of a bundle in the user's own image."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ..recipes import find_recipe
from ..runtime.archive import check_bundle
from ..runtime.errors import UsageError
from . import options
from .output import err, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..recipes import Recipe

SCHEMA_VERSION = "capsule-build.test.v1"


def register(app: typer.Typer, recipes: Mapping[str, Recipe], folder: Path) -> None:
    """Add the command."""
    del folder

    @app.command("test")
    def test(
        bundle: Path = typer.Argument(help="The bundle."),
        image: str = typer.Argument(help="An image that the engine holds, or can pull."),
        container_cli: str = options.ENGINE,
        docker: str = options.DEPRECATED_ENGINE,
        as_json: bool = options.JSON,
    ) -> None:
        """Run every tool of a bundle in an image of your own, with the network off."""
        from ..engine import select_engine
        from ..smoke import require_passed, run_smoke

        manifest = check_bundle(bundle).manifest
        if manifest.runtime_id not in recipes:
            raise UsageError(
                f"{bundle} is a capsule of {manifest.runtime_id}, for which there is no recipe here.",
                hint=f"Recipes: {', '.join(recipes)}. Others are taken from --recipes DIR.",
            )
        recipe = find_recipe(recipes, manifest.runtime_id)
        console = err()
        with select_engine(options.engine_choice(container_cli, docker), say=console.print) as engine:
            if not engine.has_image(image):
                console.print(f"Pulling {image}.")
                engine.pull(image)
            results = run_smoke(engine, image, bundle, recipe)
        if as_json:
            print_json(
                {
                    "schema_version": SCHEMA_VERSION,
                    "image": image,
                    "tools": [item.to_json() for item in results],
                }
            )
        else:
            print_table(
                ("tool", "printed", ""),
                [(item.tool, item.printed, "ok" if item.passed else "FAILED") for item in results],
            )
        require_passed(results, image)
