"""The bundler's program, kept beside the compiled guests by the same rules: private, checked before use."""

from __future__ import annotations

import os
import stat

from .. import jsontext
from ..store import PREPARING, Store, StoreError, identity, require_private
from .guest import PINS, sources

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable


def bundler(store: Store, say: Callable[[str], None]) -> str:
    """Return the path of the bundler; the first time on a machine it is fetched.

    Raises:
        StoreError: It could have been written by somebody else.
        InputError: It can't be had.
    """
    key = bundler_key()
    path = f"{store.root}/{key}"
    if not _is_genuine(store, key, path):
        from ...runtime.files import write_atomically
        from .making import bundler as fetch_bundler

        lock = store.lock()
        try:
            if _is_genuine(store, key, path):
                # Another process was faster.
                return path
            say(PREPARING.format("fetching the bundler of JavaScript"))
            data = fetch_bundler()
            from pathlib import Path

            write_atomically(Path(path), data, mode=0o700)
            _remember(store, key, path, data)
        finally:
            os.close(lock)
    return path


def bundler_key() -> str:
    """Return the name that the bundler has in the store: it is that of what is pinned."""
    import _blake2

    with open(f"{sources()}/{PINS}", "rb") as stream:
        digest = _blake2.blake2b(stream.read(), digest_size=12).hexdigest()
    return f"bundler-{digest}-{os.uname().machine}"


def _is_genuine(store: Store, key: str, path: str) -> bool:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is no file.", hint="Remove it.")
    require_private(os.lstat(store.root), store.root)
    require_private(status, path)
    try:
        record = jsontext.loads(store.note(f"{key}.json") or b"null")
    except ValueError:
        return False
    if not isinstance(record, dict):
        return False
    if record.get("seen") == identity(status):
        return True
    import hashlib

    with open(path, "rb") as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != record.get("sha256"):
        return False
    _remember(store, key, path, data)
    return True


def _remember(store: Store, key: str, path: str, data: bytes) -> None:
    import hashlib

    record = {"sha256": hashlib.sha256(data).hexdigest(), "seen": identity(os.lstat(path))}
    store.put_note(f"{key}.json", jsontext.dumps(record).encode())
