"""The store of bundles: `<data_dir>/capsules/<file name>`.

A bundle that is there is hashed and nothing else: no server is asked and nothing is written, so a data folder
that can't be written to serves as well. One that is absent is downloaded under a temporary name in the same
folder, checked, and renamed. A bundle of another digest than the registry lock's is an error, never a reason
for a silent download.

Processes that want the same bundle at once wait for each other at the temporary file, which the kernel
unlocks when its holder dies; what a killed one had loaded is gone on with.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from .errors import CapsuleError, DigestError, InputError, SignatureError, UsageError
from .files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .download import Downloader
    from .registry import Resolved, Variant

    Progress = Callable[[int, int], None]
    """Is told the bytes that are there, and how many it will be."""

    SignatureCheck = Callable[[Path, Path], None]
    """Is given a bundle and its signature, and raises `SignatureError` if that doesn't hold."""

SIGNATURE_SUFFIX: Final = ".sigstore.json"
"""What a bundle's file name and URL are continued with for its signature."""

MAX_SIGNATURE_BYTES: Final = 1 << 20
"""Bytes of a signature."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Store:
    """The bundles that a framework keeps.

    Args:
        data_dir: The framework's data folder; bundles lie in `capsules` below it.
        downloader: How bundles are downloaded; by default as `Downloader()` does it.
    """

    def __init__(self, data_dir: Path, *, downloader: Downloader | None = None) -> None:
        self.folder = Path(data_dir) / "capsules"
        self._downloader = downloader

    def path(self, variant: Variant) -> Path:
        """Return where a variant's bundle lies, or will."""
        return self.folder / variant.filename

    def get(
        self,
        resolved: Resolved,
        *,
        replace: bool = False,
        progress: Progress | None = None,
        check_signature: SignatureCheck | None = None,
    ) -> Path:
        """Return the checked bundle of a resolved tag, downloaded if it isn't there.

        Args:
            resolved: What the registry lock says.
            replace: Whether a bundle of another digest is replaced by the lock's.
            progress: Is told how the download goes on.
            check_signature: Is given the bundle and its signature, which is downloaded with it; a bundle that
                it refuses doesn't get its name.

        Raises:
            DigestError: The file that is there has another digest. It is left as it is.
            InputError: The bundle can't be had; the message has the reason of every URL.
            SignatureError: The signature is missing or doesn't hold.
        """
        path = self.path(resolved.variant)
        if not self._present(path, resolved, replace=replace):
            self._load(path, resolved, progress, check_signature)
        elif check_signature is not None:
            signature = path.with_name(path.name + SIGNATURE_SUFFIX)
            if not signature.is_file():
                raise SignatureError(
                    f"The signature of '{path}' is missing: '{signature.name}' should lie beside it.",
                    hint="Put it there, or remove the bundle so that both are downloaded.",
                )
            check_signature(path, signature)
        return path

    def _present(self, path: Path, resolved: Resolved, *, replace: bool) -> bool:
        """Return whether the right bundle is there. False: it is to be downloaded."""
        variant = resolved.variant
        try:
            size = path.stat().st_size
            found = sha256_file(path) if size == variant.size or not replace else ""
        except FileNotFoundError:
            return False
        except OSError as error:
            raise InputError(f"The bundle '{path}' can't be read: {error.strerror}.") from error
        if found == variant.sha256:
            return True
        if replace:
            return False
        raise DigestError(
            f"'{path}' is not the bundle of '{resolved.tag}' for {resolved.platform}: its SHA-256 is "
            f"{found}, the registry lock says {variant.sha256}. It is left as it is.",
            hint="Remove the file, or ask for it to be replaced; or use the registry lock that names it.",
        )

    def _load(
        self,
        path: Path,
        resolved: Resolved,
        progress: Progress | None,
        check_signature: SignatureCheck | None,
    ) -> None:
        variant = resolved.variant
        if not variant.urls:
            raise InputError(
                f"The bundle '{variant.filename}' is not in the store, and the registry lock has no URL.",
                hint=f"Put it into '{self.folder}'.",
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._part(path, resolved) as part:
                if part is not None:
                    self._fill(path, part, variant, progress, check_signature)
        except OSError as error:
            raise _unwritable(path, error) from error

    @contextlib.contextmanager
    def _part(self, path: Path, resolved: Resolved) -> Iterator[IO[bytes] | None]:
        """Open the temporary file, alone. `None`: another process has finished the bundle meanwhile."""
        name = path.with_name(f".{path.name}.{resolved.variant.sha256[:16]}.part")
        while True:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with os.fdopen(handle, "r+b", buffering=0) as stream:
                fcntl.flock(handle, fcntl.LOCK_EX)
                try:
                    same = name.stat().st_ino == os.fstat(handle).st_ino
                except FileNotFoundError:
                    same = False
                if same:
                    yield stream
                    return
            # Whoever held it has renamed or removed it.
            if self._present(path, resolved, replace=True):
                yield None
                return

    def _fill(
        self,
        path: Path,
        part: IO[bytes],
        variant: Variant,
        progress: Progress | None,
        check_signature: SignatureCheck | None,
    ) -> None:
        name = path.with_name(f".{path.name}.{variant.sha256[:16]}.part")
        signature = path.with_name(path.name + SIGNATURE_SUFFIX)
        try:
            downloader = self._downloader or _default_downloader()
            downloader.bundle(variant, part, progress)
            if check_signature is not None:
                loaded = name.with_name(name.name + SIGNATURE_SUFFIX)
                try:
                    loaded.write_bytes(
                        downloader.document(
                            [url + SIGNATURE_SUFFIX for url in variant.urls], MAX_SIGNATURE_BYTES
                        )
                    )
                    check_signature(name, loaded)
                    loaded.replace(signature)
                finally:
                    loaded.unlink(missing_ok=True)
            os.fchmod(part.fileno(), 0o644)
            os.fsync(part.fileno())
            name.replace(path)
            _sync_folder(path.parent)
        except OSError as error:
            if error.errno in _NO_ROOM:
                name.unlink(missing_ok=True)
            raise
        except (DigestError, SignatureError):
            name.unlink(missing_ok=True)
            raise
        except InputError:
            # What has come is gone on with the next time; an empty file is of no use.
            if not os.fstat(part.fileno()).st_size:
                name.unlink(missing_ok=True)
            raise


def _default_downloader() -> Downloader:
    # Only a download needs the modules that speak HTTP and TLS: they take longer to load than all others.
    from .download import Downloader  # noqa: PLC0415

    return Downloader()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(path: Path, error: OSError) -> CapsuleError:
    if error.errno in _NO_ROOM:
        return InputError(
            f"The bundle '{path}' can't be stored: {error.strerror}. What was loaded of it is removed.",
            hint="Make room, or take another data folder.",
        )
    return UsageError(
        f"The bundle '{path}' can't be stored: {error.strerror}.",
        hint="The data folder must be writable where a bundle is not there yet.",
    )
