"""CycloneDX 1.6's official schema, read strictly, with the formats of the values that it names.

The schema is cyclonedx's copy, and its keywords are jsonschema's, but for what takes too long there: that a
list's items differ, which it compares pair by pair, and the formats, which it parses by a general grammar.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from ..runtime.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_WORDS: Final = 300
"""Of a message that begins with the whole value, and ends with what is wrong with it."""

# RFC 3339, section 5.6, but for what is a matter of the calendar. Leap seconds are none of an SBOM's.
_DATE_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.\d+)?(?:[Zz]|[+-](\d\d:\d\d))", re.ASCII
)

# RFC 3987, section 2.2, by the names that its grammar has. RFC 3986, appendix B, takes a reference apart.
_PARTS: Final = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_UCSCHAR: Final = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr((plane << 16) + (0x1000 if plane == 14 else 0))}-{chr((plane << 16) + 0xFFFD)}"
    for plane in range(1, 15)
)
_IPRIVATE: Final = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_PLAIN: Final = rf"A-Za-z0-9\-._~!$&'()*+,;={_UCSCHAR}"
_ESCAPED: Final = "%[0-9A-Fa-f]{2}"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*")
_NAME: Final = re.compile(f"(?:[{_PLAIN}]|{_ESCAPED})*")
_USER: Final = re.compile(f"(?:[{_PLAIN}:]|{_ESCAPED})*")
_PATH: Final = re.compile(f"(?:[{_PLAIN}:@/]|{_ESCAPED})*")
_QUERY: Final = re.compile(f"(?:[{_PLAIN}:@/?{_IPRIVATE}]|{_ESCAPED})*")
_FRAGMENT: Final = re.compile(f"(?:[{_PLAIN}:@/?]|{_ESCAPED})*")
_AUTHORITY: Final = re.compile(r"(?:(.*)@)?(\[.*\]|[^:\[\]@]*)(?::[0-9]*)?", re.DOTALL)
_FUTURE: Final = re.compile(r"[vV][0-9A-Fa-f]+\.[A-Za-z0-9\-._~!$&'()*+,;=:]+")


def check_schema(document: dict[str, Any]) -> None:
    """Hold a document against the schema, and its dates, addresses and references against their formats.

    Raises:
        ContractError: It doesn't hold; the message says where.
    """
    try:
        found = next(_validator().iter_errors(document), None)
    except RecursionError:
        raise ContractError("The SBOM is nested too deeply.") from None
    if found is not None:
        place = "".join(f"[{part!r}]" for part in found.absolute_path) or "its top"
        raise ContractError(f"The SBOM breaks CycloneDX's schema at {place}: {_shortened(found.message)}")


def is_date_time(value: object) -> bool:
    """Return whether a text is a moment as RFC 3339 writes it; what isn't text is none of this format's."""
    if not isinstance(value, str):
        return True
    found = _DATE_TIME.fullmatch(value)
    if found is None:
        return False
    date, time, offset = found.groups()
    try:
        datetime.date.fromisoformat(date)
        for clock in (time, offset or "00:00"):
            datetime.time.fromisoformat(clock)
    except ValueError:
        return False
    return True


def is_reference(value: object) -> bool:
    """Return whether a text is an IRI reference (RFC 3987); what isn't text is none of this format's."""
    if not isinstance(value, str):
        return True
    found = _PARTS.fullmatch(value)
    if found is None:
        return False
    scheme, authority, path, query, fragment = found.groups()
    return (
        (scheme is None or _SCHEME.fullmatch(scheme) is not None)
        # Without a scheme a first segment with a colon would be read as one.
        and (scheme is not None or authority is not None or ":" not in path.split("/", 1)[0])
        and (authority is None or _is_authority(authority))
        and _PATH.fullmatch(path) is not None
        and (query is None or _QUERY.fullmatch(query) is not None)
        and (fragment is None or _FRAGMENT.fullmatch(fragment) is not None)
    )


def _is_uri(value: object) -> bool:
    if not isinstance(value, str):
        return True
    scheme = value.split(":", 1)[0] if ":" in value else ""
    return value.isascii() and _SCHEME.fullmatch(scheme) is not None and is_reference(value)


def _is_address(value: object) -> bool:
    return not isinstance(value, str) or "@" in value


def _is_authority(authority: str) -> bool:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return False
    user, host = found.groups()
    if user is not None and not _USER.fullmatch(user):
        return False
    if not host.startswith("["):
        return _NAME.fullmatch(host) is not None
    inside = host[1:-1]
    if _FUTURE.fullmatch(inside):
        return True
    try:
        return ipaddress.IPv6Address(inside).scope_id is None
    except ValueError:
        return False


def _shortened(message: str) -> str:
    half = _MAX_WORDS // 2
    return message if len(message) <= _MAX_WORDS else f"{message[:half]} ... {message[-half:]}"


def _unique(_validator: object, wanted: object, value: object, _schema: object) -> Iterator[Exception]:
    """Check the keyword `uniqueItems`, in one pass.

    jsonschema compares every two items, which took 20 s for the files of a CPython.
    """
    from jsonschema import ValidationError  # noqa: PLC0415

    if wanted is not True or not isinstance(value, list):
        return
    # Equal as JSON means the same text, but for 1 and 1.0, which nothing in CycloneDX tells apart.
    if len({json.dumps(item, sort_keys=True) for item in value}) < len(value):
        yield ValidationError(f"{value!r} has non-unique elements")


@functools.cache
def _validator() -> Any:
    """Return what holds a document against the schema; it is made once, and only where it is used."""
    from cyclonedx.schema import SchemaVersion, _res  # noqa: PLC0415 - builds and locks need not wait
    from jsonschema import Draft7Validator, FormatChecker  # noqa: PLC0415
    from jsonschema.validators import extend  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415
    from referencing.jsonschema import DRAFT7  # noqa: PLC0415

    formats = FormatChecker(())
    formats.checks("date-time")(is_date_time)
    formats.checks("iri-reference")(is_reference)
    formats.checks("uri")(_is_uri)
    formats.checks("idn-email")(_is_address)

    def read(path: str) -> Any:
        return json.loads(Path(path).read_bytes())

    main = read(str(_res.BOM_JSON_STRICT[SchemaVersion.V1_6]))
    others = {
        urljoin(main["$id"], f"{name}.SNAPSHOT.schema.json"): DRAFT7.create_resource(read(path))
        for name, path in (
            ("spdx", _res.SPDX_JSON),
            ("jsf-0.82", _res.JSF),
            ("cryptography-defs", _res.CRYPTOGRAPHY_DEFS),
        )
    }
    keywords = extend(Draft7Validator, {"uniqueItems": _unique})
    return keywords(main, registry=Registry().with_resources(others.items()), format_checker=formats)
