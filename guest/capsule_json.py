"""What host and guest say to each other, by the C code below `json`.

The package does the same with more of Python, and that touches more of the snapshot, which each instance then
has to copy.
"""

import json
from json.encoder import c_make_encoder, encode_basestring_ascii

_scan = json.JSONDecoder().scan_once
_refuse = json.JSONEncoder().default


def loads(text: str) -> object:
    """Return the value of a text of the host: whole, and without spaces around it."""
    return _scan(text, 0)[0]


def dumps(value, *, allow_nan: bool = True) -> str:
    """Return a value as text, or raise, as `json.dumps` does."""
    encode = c_make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, allow_nan)
    return "".join(encode(value, 0))
