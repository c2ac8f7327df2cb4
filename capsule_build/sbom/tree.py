"""Completes a finished tree: licence texts, the notice, and the SBOM that lists all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .document import make_sbom
from .notice import add_notice
from .own import FILE_NAME
from .parts import find_parts
from .texts import add_texts, licence_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ..components import Component
    from ..inputs import ReadyInput
    from ..plan import BuildPlan


def describe_tree(
    plan: BuildPlan, inputs: Sequence[ReadyInput], components: Mapping[str, Component], tree: Path
) -> None:
    """Write the licence texts of what is in a tree, the notice, and last the SBOM.

    Args:
        plan: The plan that the tree was built by.
        inputs: The inputs that it was made of.
        components: What each component is.
        tree: The tree, with its manifest.

    Raises:
        ContractError: The tree lacks something that the recipe or a licence asks for, or a file is nobody's.
        InputError: An input is damaged.
    """
    parts = find_parts(plan, inputs, components, tree)
    add_texts(tree, parts, licence_list(inputs))
    add_notice(tree, parts)
    (tree / FILE_NAME).write_bytes(make_sbom(plan, parts, tree))
