"""SLSA provenance of any build type of this project, read strictly from a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from ..runtime.errors import ContractError, SignatureError
from .slsa import PREDICATE_TYPE, Model
from .statements import Statement, dump, read_statement

if TYPE_CHECKING:
    from collections.abc import Iterable

M = TypeVar("M", bound=Model)


def read_predicate(data: bytes, what: str, build_type: str, model: type[M]) -> tuple[Statement, M]:
    """Return a provenance statement, and what it says.

    Args:
        data: Its bytes.
        what: The statement in the words of messages.
        build_type: The build type that it must be of.
        model: What it must say.

    Raises:
        ContractError: It isn't complete, or holds something that isn't known.
        SignatureError: It is a statement of another predicate type or build type.
    """
    statement = read_statement(data, what)
    statement.require_type(PREDICATE_TYPE, what)
    definition = statement.predicate.get("buildDefinition")
    said = definition.get("buildType") if isinstance(definition, dict) else None
    if isinstance(said, str) and said != build_type:
        raise SignatureError(f"{what} has the build type {said!a}; {build_type!a} is wanted.")
    try:
        return statement, model.model_validate_json(dump(statement.predicate))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ContractError(
            f"{what} isn't SLSA provenance of a bundle: predicate.{where}: {first['msg']}."
        ) from error


def require_once(names: Iterable[str], what: str) -> None:
    """Raise ContractError where a dependency is named twice."""
    seen = list(names)
    if len(set(seen)) != len(seen):
        raise ContractError(f"{what} contradicts itself: a dependency's name stands twice.")
