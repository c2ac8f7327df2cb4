"""The store of bundles: `<data_dir>/capsules/<file name>`.

A bundle that is there is hashed and nothing else: no server is asked and nothing is written, so a data folder
that can't be written to serves as well. One that is absent is downloaded under a temporary name in the same
folder, checked, and renamed. A bundle of another digest than the registry lock's is an error, never a reason
for a silent download. Without a URL, `Store.add` puts a file there that was built or got elsewhere.

Processes that want the same bundle at once wait for each other at the temporary file, which the kernel
unlocks when its holder dies; what a killed one had loaded is gone on with.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from .errors import CapsuleError, DigestError, InputError, SignatureError, UsageError
from .files import CHUNK_BYTES, atomic_writer, sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .download import Downloader
    from .registry_parts import File, Wanted

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

    def path(self, variant: File) -> Path:
        """Return where a variant's bundle lies, or will."""
        return self.folder / variant.filename

    def get(
        self,
        resolved: Wanted,
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
        if not self.has(resolved, replace=replace):
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

    def add(self, resolved: Wanted, source: Path, *, replace: bool = False) -> Path:
        """Put a bundle that lies elsewhere on this machine into the store, and return its path there.

        It is copied under a temporary name, checked, and renamed. Where the store has it already, the file is
        checked all the same: whoever names a wrong one must hear of it.

        Args:
            resolved: What the registry lock says.
            source: The file; it stays where it is.
            replace: Whether a bundle of another digest is replaced.

        Raises:
            DigestError: The file, or the one that is there, isn't the registry lock's; nothing is changed.
            InputError: There is no room, or the one that is there can't be read.
            UsageError: The file can't be read, or the store can't be written to.
        """
        path, variant = self.path(resolved.variant), resolved.variant
        present = self.has(resolved, replace=replace)
        try:
            given = source.open("rb")
        except OSError as error:
            raise UsageError(f"The file '{source}' can't be read: {error.strerror}.") from error
        with given:
            size = os.fstat(given.fileno()).st_size
            if size != variant.size:
                raise _other(source, resolved, f"it has {size} bytes, the registry lock says {variant.size}")
            if present:
                _check(source, resolved, sha256_file(source))
                return path
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                with atomic_writer(path) as copy:
                    _check(source, resolved, _copy(given, copy))
                _sync_folder(path.parent)
            except OSError as error:
                raise _unwritable(path, error) from error
        return path

    def has(self, resolved: Wanted, *, replace: bool = False) -> bool:
        """Return whether the right bundle is there; nothing is downloaded.

        Args:
            resolved: What the registry lock says.
            replace: Whether one of another digest counts as none, and not as an error.

        Raises:
            DigestError: The file that is there has another digest.
            InputError: It can't be read.
        """
        path, variant = self.path(resolved.variant), resolved.variant
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
            hint=f"Have it replaced: {_command(resolved, replace=True)}\n"
            "Or use the registry lock that names it.",
        )

    def missing(self, resolved: Wanted) -> InputError:
        """Return the error for a bundle that the store lacks and that the registry lock has no URL of."""
        path = self.path(resolved.variant)
        damaged = path.exists()
        said = (
            f"There is no bundle of '{resolved.tag}' for {resolved.platform} in the store, and the registry "
        )
        said += "lock has no URL for it."
        if damaged:
            said = (
                f"'{path}' is damaged or another bundle, and the registry lock has no URL to replace it from."
            )
        return InputError(
            said,
            hint=f"'{resolved.build_command}' builds it; this, with your --lock and --data-dir, puts it into "
            f"the store:\n{_command(resolved, replace=damaged)}",
        )

    def _load(
        self,
        path: Path,
        resolved: Wanted,
        progress: Progress | None,
        check_signature: SignatureCheck | None,
    ) -> None:
        variant = resolved.variant
        if not variant.urls:
            raise self.missing(resolved)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._part(path, resolved) as part:
                if part is not None:
                    self._fill(path, part, variant, progress, check_signature)
        except OSError as error:
            raise _unwritable(path, error) from error

    @contextlib.contextmanager
    def _part(self, path: Path, resolved: Wanted) -> Iterator[IO[bytes] | None]:
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
                    if not self.has(resolved, replace=True):
                        yield stream
                        return
                    # We began it anew after another process had finished its own and renamed it.
                    name.unlink()
                    yield None
                    return
            # Whoever held it has renamed or removed it.
            if self.has(resolved, replace=True):
                yield None
                return

    def _fill(
        self,
        path: Path,
        part: IO[bytes],
        variant: File,
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


def _command(resolved: Wanted, *, replace: bool) -> str:
    """Return the command that gets a bundle into the store: downloaded, or from where a build puts it."""
    command = f"capsule fetch {resolved.tag}"
    if resolved.variant.urls:
        command += f" --platform {resolved.platform}"
    else:
        command += f" --from dist/{resolved.variant.filename}"
    return command + (" --replace" if replace else "")


def _copy(given: IO[bytes], copy: IO[bytes]) -> str:
    """Copy a file and return its SHA-256."""
    digest = hashlib.sha256()
    while chunk := given.read(CHUNK_BYTES):
        copy.write(chunk)
        digest.update(chunk)
    return digest.hexdigest()


def _check(source: Path, resolved: Wanted, found: str) -> None:
    """Check the digest of a file that is to be put into the store."""
    wanted = resolved.variant.sha256
    if found != wanted:
        raise _other(source, resolved, f"its SHA-256 is {found}, the registry lock says {wanted}")


def _other(source: Path, resolved: Wanted, differs: str) -> DigestError:
    return DigestError(
        f"'{source}' is not the bundle of '{resolved.tag}' for {resolved.platform}: {differs}.",
        hint="Take the file that the registry lock names, or a registry lock (--lock) that names this file: "
        "'capsule-build lock --lock FILE' makes one.",
    )


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
