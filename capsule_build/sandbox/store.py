"""The compiled guest: made once per machine and user, kept in a private folder, checked before each use.

It has two files: its code, and the image that its memory begins with.

Machine code that is loaded is trusted as this program itself is. So it is only taken from a folder and a file
that belong to this user and that nobody else can write to or read, and only if it is byte for byte what was
compiled: its digest is compared, or, when the file's inode, size and times are those of the last comparison,
known (the kernel sets the time of a change, so a file can't be changed and keep them).
"""

from __future__ import annotations

import os
import stat

from ..runtime.errors import CapsuleError
from . import jsontext
from . import wasmtime_abi as abi
from .records import Record

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final

CACHE_VARIABLE: Final = "CAPSULE_CACHE_DIR"
FORMAT: Final = 3
"""Changed when `machine` configures Wasmtime in another way, or what is kept of a guest changes."""

PREPARING: Final = "Preparing the sandbox, once on this machine: {} ..."
"""What is said before each step that takes its time. How long: docs/tasks.md."""

MAX_COMPILED: Final = 3
"""Compiled guests that stay, of each kind."""

MAX_NOTES: Final = 1000
MAX_NOTE_BYTES: Final = 1 << 20


_CODE, _IMAGE = "cwasm", "image"


class Guest(Record):
    """A compiled guest.

    Attributes:
        code: Its machine code.
        image: What its memory begins with.
    """

    code: bytes
    image: bytes


class GuestFiles(Record):
    """The files of a compiled guest: descriptors, which the caller closes."""

    code: int
    image: int


class StoreError(CapsuleError):
    """The folder of compiled code isn't private, or can't be written."""


def default_root() -> str:
    """Return the folder of compiled code: in `$CAPSULE_CACHE_DIR`, else in the user's cache."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return f"{own}/sandbox"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return f"{base}/capsule-build/sandbox"


class Store:
    """A folder of compiled guests.

    Args:
        root: Where it lies; without, `default_root()`.
    """

    def __init__(self, root: str | None = None) -> None:
        self.root = root or default_root()

    def open(self, key: str) -> GuestFiles | None:
        """Return the files of a compiled guest; `None`: there is none to use.

        One that isn't what was compiled is removed.

        Raises:
            StoreError: The folder, or a file, could have been written by somebody else.
        """
        try:
            folder = os.lstat(self.root)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.root, error) from error
        if not stat.S_ISDIR(folder.st_mode):
            raise StoreError(f"{self.root} is not a folder.", hint="Remove it.")
        require_private(folder, self.root)
        handles: list[int] = []
        try:
            # One that is open when the next one fails is in the list, and so is closed.
            handles.extend(self._opened(f"{self.root}/{key}.{suffix}") for suffix in (_CODE, _IMAGE))
            # Without a record another process may just be keeping it.
            record = self._record(key)
            files = GuestFiles(*handles)
            if record is not None and self._are_genuine(key, files, record):
                handles.clear()
                return files
            if record is not None:
                self.remove(key)
        except FileNotFoundError:
            pass
        finally:
            for handle in handles:
                os.close(handle)
        return None

    def _opened(self, path: str) -> int:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{path} can't be opened: {error.strerror}.", hint="Remove it.") from error
        try:
            require_private(os.fstat(handle), path)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def put(self, key: str, guest: Guest, *, made_from: str | None = None) -> None:
        """Keep a compiled guest.

        Args:
            key: Its name: its kind, a dash, and what it was made from.
            guest: The guest.
            made_from: The SHA-256 of the WebAssembly that it was compiled from.

        Raises:
            StoreError: The folder isn't private, or can't be written.
        """
        try:
            self._put(key, guest, made_from)
        except OSError as error:
            raise _unusable(self.root, error) from error

    def _put(self, key: str, guest: Guest, made_from: str | None) -> None:
        import hashlib

        from ..runtime.files import write_atomically

        os.makedirs(self.root, mode=0o700, exist_ok=True)
        require_private(os.lstat(self.root), self.root)
        self.remove(key)
        record: dict[str, Any] = {"made_from": made_from}
        for suffix, content in ((_IMAGE, guest.image), (_CODE, guest.code)):
            path = f"{self.root}/{key}.{suffix}"
            write_atomically(_path(path), content, mode=0o600)
            record[suffix] = {
                "sha256": hashlib.sha256(content).hexdigest(),
                "seen": identity(os.stat(path)),
            }
        self._prune(_kind(key))
        write_atomically(_path(f"{self.root}/{key}.json"), jsontext.dumps(record).encode(), mode=0o600)

    def _prune(self, kind: str) -> None:
        """Keep the newest few of a kind.

        Each has up to 50 MB, and those of past versions are never asked for again. What another kind has is
        in use all the same.
        """
        with os.scandir(self.root) as entries:
            times = {
                entry.name: entry.stat().st_mtime_ns
                for entry in entries
                if entry.name.endswith(f".{_CODE}") and _kind(entry.name) == kind
            }
        for name in sorted(times, key=times.__getitem__)[:-MAX_COMPILED]:
            self.remove(name.removesuffix(f".{_CODE}"))

    def made_from(self, key: str) -> str | None:
        """Return the SHA-256 of the WebAssembly that a compiled guest was made from, where it is known."""
        record = self._record(key)
        return None if record is None else record.get("made_from")

    def remove(self, key: str) -> None:
        """Forget a compiled guest."""
        for suffix in ("json", _CODE, _IMAGE):
            _unlink(f"{self.root}/{key}.{suffix}")

    def lock(self) -> int:
        """Let one process at a time compile; the caller closes what is returned.

        Raises:
            StoreError: The folder can't be written.
        """
        import fcntl

        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.makedirs(self.root, mode=0o700, exist_ok=True)
            handle = os.open(f"{self.root}/lock", flags, 0o600)
        except OSError as error:
            raise _unusable(self.root, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def _are_genuine(self, key: str, files: GuestFiles, record: dict[str, Any]) -> bool:
        compared = False
        for suffix, handle in ((_CODE, files.code), (_IMAGE, files.image)):
            if record[suffix]["seen"] == identity(os.fstat(handle)):
                continue
            if _digest(handle) != record[suffix]["sha256"]:
                return False
            record[suffix]["seen"] = identity(os.fstat(handle))
            compared = True
        if compared:
            from ..runtime.files import write_atomically

            write_atomically(_path(f"{self.root}/{key}.json"), jsontext.dumps(record).encode(), mode=0o600)
        return True

    def _record(self, key: str) -> dict[str, Any] | None:
        try:
            record = jsontext.loads(self.note(f"{key}.json") or b"null")
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        of_files = [record.get(suffix) for suffix in (_CODE, _IMAGE)]
        whole = all(isinstance(one, dict) and {"sha256", "seen"} <= one.keys() for one in of_files)
        return record if whole else None

    def note(self, name: str, *, limit: int = MAX_NOTE_BYTES) -> bytes | None:
        """Return what a small file holds, or `None` when there is none.

        Args:
            name: As `put_note` was given it.
            limit: Bytes that it has at most.

        Raises:
            StoreError: It could have been written by somebody else.
        """
        path = f"{self.root}/{name}"
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as stream:
            require_private(os.fstat(handle), path)
            return stream.read(limit)

    def put_note(self, name: str, data: bytes) -> None:
        """Keep a small file, in a folder that `open` has found private. Of each kind, a thousand stay.

        Args:
            name: Its kind, a dash, and what tells it from others of that kind.
            data: What it holds.
        """
        from ..runtime.files import write_atomically

        kind = _kind(name)
        others = [other for other in os.listdir(self.root) if _kind(other) == kind]
        if len(others) >= MAX_NOTES:
            for other in others:
                _unlink(f"{self.root}/{other}")
        write_atomically(_path(f"{self.root}/{name}"), data, mode=0o600)


def _digest(handle: int) -> str:
    import hashlib

    digest = hashlib.sha256()
    offset = 0
    while chunk := os.pread(handle, 1 << 20, offset):
        digest.update(chunk)
        offset += len(chunk)
    return digest.hexdigest()


def _unusable(root: str, error: OSError) -> StoreError:
    return StoreError(
        f"{root} can't be written: {error.strerror or error}.",
        hint=f"Name another folder with {CACHE_VARIABLE}.",
    )


def _kind(name: str) -> str:
    """Return what a name of the store begins with: `guest`, `javascript`, `bundle`."""
    return name.partition("-")[0]


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _path(text: str) -> Any:
    from pathlib import Path

    return Path(text)


def identity(status: os.stat_result) -> list[int]:
    """Return what a file can't keep when it is changed: the kernel sets the time of a change."""
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def require_private(status: os.stat_result, path: str) -> None:
    """Refuse what somebody else could have written.

    Raises:
        StoreError: It isn't this user's own, or others may use it.
    """
    if status.st_uid != os.geteuid():
        raise StoreError(
            f"{path} belongs to user {status.st_uid}; compiled code is only taken from one's own files.",
            hint=f"Remove it, or set {CACHE_VARIABLE} to a folder of your own.",
        )
    if status.st_mode & 0o077:
        raise StoreError(
            f"{path} can be used by others than its owner (mode {stat.S_IMODE(status.st_mode):04o}).",
            hint=f"chmod go= {path}, or remove it.",
        )


def prepare(
    store: Store,
    key: str,
    make: Callable[[Callable[[str], None]], bytes],
    compile_guest: Callable[[bytes], Guest],
    say: Callable[[str], None],
    *,
    language: str,
) -> None:
    """Make and compile the guest, if no other process has done so meanwhile.

    Args:
        store: Where it is kept.
        key: Its name there.
        make: Returns the guest's WebAssembly; it is given `say`.
        compile_guest: Turns that into machine code.
        say: Hears what takes its time.
        language: The language whose guest it is.
    """
    import hashlib

    lock = store.lock()
    try:
        files = store.open(key)
        if files is not None:
            os.close(files.code)
            os.close(files.image)
            return
        wasm = make(say)
        say(PREPARING.format(f"compiling {language}'s guest"))
        store.put(key, compile_guest(wasm), made_from=hashlib.sha256(wasm).hexdigest())
        say(f"The sandbox for {language} is ready (Wasmtime {abi.VERSION}).")
    finally:
        os.close(lock)
