"""A place that holds files by relative names: a folder, or a web server."""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.errors import UsageError
from . import http
from .transfer import BLOCK_BYTES, MAX_FILE_BYTES, NotThereError, Sink, UnreachableError, WrongFileError

if TYPE_CHECKING:
    from .transfer import Transfer


@dataclass(frozen=True)
class Location:
    """A mirror. Exactly one of the two is set.

    Attributes:
        folder: A folder on this machine.
        url: An http or https URL that ends in a slash.
    """

    folder: Path | None = None
    url: str = ""

    @classmethod
    def parse(cls, text: str, variable: str) -> Location:
        """Read a folder's path, or a file, http or https URL.

        Args:
            text: What the user gave.
            variable: Where it was given, for messages.

        Raises:
            UsageError: It is of another kind, or names a folder that isn't there.
        """
        parts = urllib.parse.urlsplit(text)
        if parts.scheme in {"http", "https"} and parts.netloc:
            return cls(url=text if text.endswith("/") else text + "/")
        if parts.scheme in {"file", "copy"}:
            folder = Path(urllib.parse.unquote(parts.path))
        elif "://" in text:
            raise UsageError(
                f"{variable} is '{http.redact(text)}', which is neither a folder nor an http or https URL."
            )
        else:
            folder = Path(text)
        if not folder.is_dir():
            raise UsageError(f"{variable} names a folder that isn't there: {folder}.")
        return cls(folder=folder.absolute())

    def __str__(self) -> str:
        return http.redact(self.url) if self.folder is None else str(self.folder)

    def fetch(self, name: str, destination: Path, *, transfer: Transfer, size: int | None = None) -> None:
        """Copy or download a file.

        Args:
            name: Its name below the place, with slashes.
            destination: Where the bytes go.
            transfer: Told about the bytes.
            size: How many bytes it must have, if that is known.

        Raises:
            NotThereError: The place doesn't have it.
            UnreachableError: It can't be read.
            WrongFileError: It has another size.
            StorageError: `destination` can't be written.
            CancelledError: The transfer was called off.
        """
        if self.folder is None:
            http.download(
                self.url + urllib.parse.quote(name, safe="/~"), destination, transfer=transfer, size=size
            )
        else:
            _copy(self.folder / name, destination, transfer, size)


def _copy(source: Path, destination: Path, transfer: Transfer, size: int | None) -> None:
    limit = MAX_FILE_BYTES if size is None else size
    try:
        reader = source.open("rb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotThereError(f"{source} isn't there.") from error
    except OSError as error:
        raise UnreachableError(f"{source} can't be read: {error.strerror}.") from error
    with reader, Sink(destination, transfer, limit=limit, source=str(source)) as sink:
        while True:
            try:
                block = reader.read(BLOCK_BYTES)
            except OSError as error:
                raise UnreachableError(f"{source} can't be read: {error.strerror}.") from error
            if not block:
                break
            sink.write(block)
    if size is not None and sink.done != size:
        raise WrongFileError(f"{source} has {sink.done} bytes instead of {size}.")
