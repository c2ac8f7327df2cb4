"""`test BUNDLE [IMAGE]`: runs every tool of a bundle in the user's own image, or in a nearly empty one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..recipes import find_recipe
from ..runtime.archive import check_bundle
from ..runtime.errors import UsageError
from ..runtime.platforms import Platform, host_architecture
from . import options, packed, panels
from .definitions import load_definitions
from .output import Json, err, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..recipes import Recipe

SCHEMA_VERSION = "capsule-build.test.v1"
_BARE = "an image that holds one static shell"

Bundle = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle (.tar.gz).")]
Image = Annotated[
    str | None,
    typer.Argument(
        metavar="[IMAGE]",
        help="An image that the engine holds, or can pull. Default: one that holds a static shell.",
    ),
]


def register(app: typer.Typer, recipes: Mapping[str, Recipe], folder: Path) -> None:
    """Add the command."""

    @app.command("test", rich_help_panel=panels.BUNDLES)
    def test(
        bundle: Bundle,
        image: Image = None,
        container_cli: str = options.ENGINE,
        docker: str = options.DEPRECATED_ENGINE,
        as_json: Json = False,
    ) -> None:
        """Run every tool of a bundle in an image of your own, with the network off."""
        from ..engine import select_engine
        from ..engine.protocol import check_reference
        from ..fetch import Cache, fetch_all
        from ..smoke import bare_image, require_passed, run_smoke

        packed.refuse_packed("test", bundle)
        if image is not None:
            check_reference(image)
        manifest = check_bundle(bundle).manifest
        if manifest.runtime_id not in recipes:
            raise UsageError(
                f"{bundle} is a capsule of {manifest.runtime_id}, for which there is no recipe here.",
                hint=f"Recipes: {', '.join(recipes)}. Others are taken from --recipes DIR.",
            )
        recipe = find_recipe(recipes, manifest.runtime_id)
        console = err()
        say = functools.partial(console.print, markup=False)
        with select_engine(options.engine_choice(container_cli, docker), say=say) as engine:
            if image is None:
                definitions = load_definitions(folder)
                shell = definitions.pins.find("busybox-static", Platform(host_architecture(), "glibc"))
                cache = Cache()
                fetched = fetch_all([shell], cache=cache, components=definitions.components, newer=True)
                with cache.stage() as scratch:
                    tried = bare_image(engine, fetched[shell].path, scratch)
            else:
                tried = image
                if not engine.has_image(image):
                    say(f"Pulling {image}.")
                    engine.pull(image)
            results = run_smoke(engine, tried, bundle, recipe)
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
        require_passed(results, image or _BARE)
