"""Environments: what a capsule is installed into.

An environment runs a program, takes a file, and takes a tree. That is all that is asked of it, so that a
framework can bring its own: derive from `ShellEnvironment` and write `run`, or provide the three methods.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from abc import ABC, abstractmethod
from io import BytesIO
from typing import IO, TYPE_CHECKING, Final, Protocol, runtime_checkable

from .errors import TargetError
from .scripts import PACK, PUT, UNPACK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from .process import Result

_PIPE_BYTES: Final = 1 << 20
_PUT_SECONDS: Final = 120.0
_TREE_SECONDS: Final = 900.0


class Environment(Protocol):
    """What a capsule is installed into."""

    @property
    def name(self) -> str:
        """How messages name it, such as `docker:web`."""

    @property
    def identity(self) -> str:
        """What tells it from all others that this machine reaches.

        Processes that install into environments of one identity wait for each other.
        """

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a program in it to its end and return what it left, whatever its status.

        Args:
            argv: The program and its arguments.
            stdin: What it reads; without, nothing.
            env: Variables on top of the environment's own.
            cwd: The working folder.
            user: The user who runs it, where that isn't the usual one.
            timeout: Seconds after which it is given up.

        Raises:
            ProgramMissingError: The program isn't there.
            CapsuleError: The environment can't be reached, or the time is over.
        """

    def put(self, data: bytes | IO[bytes], path: str, mode: int = 0o644) -> None:
        """Write a file, wholly or not at all; its folder is there.

        Raises:
            TargetError: It can't be written.
        """

    def put_tree(self, tar: Iterable[bytes], path: str) -> None:
        """Unpack a tar, given in pieces, into a folder that is there. Modes and owners are the tar's.

        An error while iterating over `tar` comes out as it is.

        Raises:
            TargetError: It can't be unpacked.
        """


@runtime_checkable
class Readable(Protocol):
    """An environment whose files can be read without a program in it."""

    def copy_out(self, path: str) -> Iterator[bytes]:
        """Yield a tar, in pieces, of a file (symlinks followed) or a folder, under its base name.

        Raises:
            TargetError: It isn't there, or can't be read.
        """

    def main_program(self) -> str | None:
        """Return the absolute path of the program that it was made to run, if that is known."""


@runtime_checkable
class Configured(Protocol):
    """An environment whose variables are known without a program in it."""

    def variables(self) -> Mapping[str, str]:
        """Return the variables that a program in it is started with, as far as its configuration says."""


@runtime_checkable
class Attachable(Protocol):
    """An environment in which a program can have this process's own input, output and terminal."""

    def attached(self, argv: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command of this machine that runs a program there.

        Args:
            argv: The program and its arguments.
            terminal: Whether it gets a terminal; input and output must be one.
        """


@runtime_checkable
class OnThisMachine(Protocol):
    """An environment whose files are below a folder of this machine."""

    def local_path(self, path: str) -> str:
        """Return where a path of the environment is for this process."""


class ShellEnvironment(ABC):
    """An environment that writes files and trees by the programs that are in it: `cat`, `mv` and `tar`."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How messages name it."""

    @property
    def identity(self) -> str:
        """What tells it from others; the name, where nothing better is known."""
        return self.name

    @abstractmethod
    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a program in it (see `Environment.run`)."""

    def pack(self, path: str) -> bytes:
        """Return a tar of a file or folder, made by the environment's own `tar`.

        Raises:
            TargetError: It can't be packed.
        """
        folder, _, name = path.rpartition("/")
        command = ["/bin/sh", "-c", PACK, "pack", folder or "/", name]
        result = self.run(command, timeout=_TREE_SECONDS)
        if result.code != 0:
            raise TargetError(
                f"{self.name}: '{path}' can't be read: {result.error_text.strip() or 'tar failed'}",
                hint="A tar program must be there.",
            )
        return result.stdout

    def put(self, data: bytes | IO[bytes], path: str, mode: int = 0o644) -> None:
        """Write a file (see `Environment.put`)."""
        result = self.run(["/bin/sh", "-c", PUT, "put", path, f"{mode:o}"], stdin=data, timeout=_PUT_SECONDS)
        if result.code != 0:
            raise TargetError(f"{self.name}: '{path}' can't be written: {result.error_text.strip()}")

    def put_tree(self, tar: Iterable[bytes], path: str) -> None:
        """Unpack a tar with the environment's own `tar` (see `Environment.put_tree`)."""
        with piped(tar) as stream:
            command = ["/bin/sh", "-c", UNPACK, "unpack", path]
            result = self.run(command, stdin=stream, timeout=_TREE_SECONDS)
        if result.code != 0:
            raise TargetError(
                f"{self.name}: '{path}' can't be unpacked into: {result.error_text.strip() or 'tar failed'}",
                hint="A tar program must be there, and room.",
            )


@contextlib.contextmanager
def piped(chunks: Iterable[bytes]) -> Iterator[IO[bytes]]:
    """Offer chunks as a file that another program can read; they are made while it reads.

    An error while making them ends the file early, and is raised when the block is left.
    """
    reading, writing = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    failures: list[BaseException] = []

    def feed() -> None:
        with os.fdopen(writing, "wb", buffering=0) as sink:
            try:
                for chunk in chunks:
                    rest = memoryview(chunk)
                    while rest:
                        rest = rest[sink.write(rest) :]
            except BrokenPipeError:
                # Whoever read has had enough; its own status says why.
                return
            except BaseException as error:
                failures.append(error)

    feeder = threading.Thread(target=feed, name="capsule-feeder", daemon=True)
    feeder.start()
    try:
        with os.fdopen(reading, "rb", buffering=0) as source:
            yield source
    finally:
        feeder.join()
        if failures:
            raise failures[0]


def whole(data: bytes | IO[bytes]) -> bytes:
    """Return bytes, or all that a stream has."""
    if isinstance(data, bytes):
        return data
    held = BytesIO()
    shutil.copyfileobj(data, held)
    return held.getvalue()
