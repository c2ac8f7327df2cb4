"""What packages say of their licence, in all the forms that they have said it in.

npm: `npm help package.json`, at "license". Python:
https://packaging.python.org/en/latest/specifications/core-metadata/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import spdx

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

_COPYLEFT: Final = ("AGPL-", "GPL-", "LGPL-")
_MAX_NAME_CHARACTERS: Final = 200
_CLASSIFIER: Final = "License ::"


@dataclass(frozen=True)
class Licence:
    """A licence as it was declared.

    Attributes:
        expression: The SPDX expression that it is, in its normal spelling; empty: it isn't one.
        name: What was said in its place; empty: nothing was.
    """

    expression: str = ""
    name: str = ""

    @property
    def label(self) -> str:
        """What people are told."""
        return self.expression or self.name or "not stated"

    @property
    def spdx_names(self) -> tuple[str, ...]:
        """The licences and exceptions of the SPDX list that it is made of; none if it is no expression."""
        return spdx.licences(self.expression) if self.expression else ()

    @property
    def asks_for_source(self) -> bool:
        """Whether who passes the component on has to say where its source is."""
        return any(name.startswith(_COPYLEFT) for name in self.spdx_names)


def said(text: str) -> Licence:
    """Return the licence that a text names: an SPDX expression, or whatever it says, in one line."""
    expression = spdx.normalised(text)
    if expression is not None:
        return Licence(expression=expression)
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:_MAX_NAME_CHARACTERS]).split())
    return Licence(name=line)


def of_npm(package: Mapping[str, Any]) -> Licence:
    """Return the licence that a package.json declares.

    Beside today's text (`MIT`, `(MIT OR Apache-2.0)`, `SEE LICENSE IN <file>`, `UNLICENSED`) there are older
    forms: an object with a `type`, and lists of either, of which the user may choose.
    """
    for key in ("license", "licenses", "licence"):
        choices = _npm_choices(package.get(key))
        if len(choices) == 1:
            return said(choices[0])
        if choices:
            every = [spdx.normalised(choice) for choice in choices]
            if None not in every:
                return said(" OR ".join(f"({choice})" for choice in every))
            return said(" or ".join(choices))
    return Licence()


def of_distribution(metadata: Message) -> Licence:
    """Return the licence that the metadata of a Python distribution declares.

    `License-Expression` is SPDX; the older `License` may hold anything, also a whole text, and then the
    classifiers say more.
    """
    expression = str(metadata.get("License-Expression", "")).strip()
    plain = str(metadata.get("License", "")).strip()
    if expression:
        return said(expression)
    if plain and spdx.normalised(plain) is not None:
        return said(plain)
    classified = [
        str(value).rpartition("::")[2].strip()
        for value in metadata.get_all("Classifier", [])
        if str(value).startswith(_CLASSIFIER)
    ]
    if classified:
        return said(" or ".join(classified))
    return said(plain.partition("\n")[0])


def _npm_choices(value: object) -> list[str]:
    entries = value if isinstance(value, list) else [value]
    found = []
    for entry in entries:
        text = (entry.get("type") or entry.get("name")) if isinstance(entry, dict) else entry
        if isinstance(text, str) and text.strip():
            found.append(text.strip())
    return found
