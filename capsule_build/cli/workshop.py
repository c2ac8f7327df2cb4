"""Opens what builds share: the engine that was chosen, the definitions, the cache."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from .output import err

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..build import Workshop
    from .definitions import Definitions


@contextlib.contextmanager
def open_workshop(
    choice: str | None, definitions: Definitions, *, newer: bool = False, keep: bool = False
) -> Iterator[Workshop]:
    """Open an engine for the time of a block, and what else builds need.

    Args:
        choice: The engine that was asked for, if any.
        definitions: What a folder of recipes defines.
        newer: Whether the current version may take the place of a pinned Debian one that is gone.
        keep: Whether a failed build's containers and log stay.

    Raises:
        EngineError: There is no engine that can be used.
    """
    # The engines' packages take a while to import; what only plans or prints must not wait for them.
    from ..build import Workshop
    from ..engine import select_engine
    from ..fetch import Cache

    with select_engine(choice, say=functools.partial(err().print, markup=False)) as engine:
        yield Workshop(
            engine=engine,
            components=definitions.components,
            pins=definitions.pins,
            cache=Cache(),
            templates=definitions.templates,
            newer=newer,
            keep=keep,
        )
