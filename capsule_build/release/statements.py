"""In-toto statements: what is said about a bundle, and signed (provenance, SBOM).

Format: https://in-toto.io/Statement/v1. Ours have exactly one subject, the bundle, by its file name and
SHA-256. They are read strictly: two readers must not understand one differently.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from ..runtime.errors import ContractError, SignatureError
from ..runtime.strict_json import JsonError, loads_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .slsa import BuilderFacts

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
SBOM_PREDICATE_TYPE: Final = "https://cyclonedx.org/bom"
"""in-toto's name for a CycloneDX document as a predicate."""
_KEYS: Final = {"_type", "subject", "predicateType", "predicate"}
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True)
class Statement:
    """A statement about one file.

    Attributes:
        filename: The file's name, without a folder.
        sha256: Its digest in lower-case hexadecimal.
        predicate_type: The URI of what is said.
        predicate: What is said, as JSON values.
    """

    filename: str
    sha256: str
    predicate_type: str
    predicate: Mapping[str, object]

    def to_bytes(self) -> bytes:
        """Return the statement's one form: JSON with sorted keys, and a final newline."""
        return dump(
            {
                "_type": STATEMENT_TYPE,
                "subject": [{"name": self.filename, "digest": {"sha256": self.sha256}}],
                "predicateType": self.predicate_type,
                "predicate": self.predicate,
            }
        )

    def require_type(self, predicate_type: str, what: str) -> None:
        """Raise SignatureError unless it says what it should.

        Args:
            predicate_type: The type that is wanted.
            what: The statement in the words of the message.
        """
        if self.predicate_type != predicate_type:
            raise SignatureError(
                f"{what} has the predicate type {self.predicate_type!a}; {predicate_type!a} is wanted."
            )

    def require_subject(self, filename: str, sha256: str, what: str) -> None:
        """Raise SignatureError unless it is about a file.

        Args:
            filename: The file's name.
            sha256: The digest of its bytes.
            what: The statement in the words of the message.
        """
        if self.sha256 != sha256:
            raise SignatureError(
                f"{what} is about another file: "
                f"its subject has SHA-256 {self.sha256}, {filename} has {sha256}."
            )
        if self.filename != filename:
            raise SignatureError(f"{what} is about {self.filename}, not about {filename}.")


class Told(Protocol):
    """A provenance, of whatever kind of bundle."""

    @property
    def statement(self) -> Statement:
        """The statement: whom it is about."""

    @property
    def builder(self) -> BuilderFacts:
        """Who built."""


def dump(value: object) -> bytes:
    """Return a JSON value's one form: sorted keys, two blanks a level, and a final newline."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read_statement(data: bytes, what: str) -> Statement:
    """Read a statement about one file.

    Args:
        data: Its bytes.
        what: The statement in the words of messages, as `The provenance x.provenance.json`.

    Raises:
        ContractError: It isn't one.
    """

    def refuse(reason: str) -> NoReturn:
        raise ContractError(f"{what} isn't an in-toto statement about one bundle: {reason}.")

    try:
        document = loads_object(data)
    except JsonError as error:
        refuse(str(error))
    if document.keys() != _KEYS:
        missing, more = sorted(_KEYS - document.keys()), sorted(document.keys() - _KEYS)
        refuse(f"it lacks {missing}" if missing else f"it has {more} as well")
    if document["_type"] != STATEMENT_TYPE:
        refuse(f"its type is {document['_type']!a}")
    subjects = document["subject"]
    if not isinstance(subjects, list) or len(subjects) != 1:
        refuse(f"it has {len(subjects) if isinstance(subjects, list) else 'no list of'} subjects")
    subject = subjects[0]
    if not isinstance(subject, dict) or subject.keys() != {"name", "digest"}:
        refuse("its subject must have a name and a digest, and nothing else")
    name, digest = subject["name"], subject["digest"]
    if not isinstance(name, str) or not FILE_NAME.fullmatch(name):
        refuse(f"its subject's name {name!a} isn't a bundle's")
    if not isinstance(digest, dict) or digest.keys() != {"sha256"}:
        refuse("its subject must have a SHA-256, and no other digest")
    sha256 = digest["sha256"]
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        refuse(f"its subject's SHA-256 is {sha256!a}")
    predicate_type, predicate = document["predicateType"], document["predicate"]
    if not isinstance(predicate_type, str) or not isinstance(predicate, dict):
        refuse("its predicate must be an object with a type")
    return Statement(name, sha256, predicate_type, predicate)
