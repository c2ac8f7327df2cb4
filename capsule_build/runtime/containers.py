"""Running containers as environments, by the command lines of Docker and Podman.

The engines unpack what is put into a container on their own side, so that the image needs no tar. Owners are
the tar's: neither engine's habit of giving files to somebody else is left on.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from abc import abstractmethod
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

from . import process
from .environment import ShellEnvironment, piped, whole
from .errors import CapsuleError, EngineError, TargetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_ASK_SECONDS: Final = 60.0
_COPY_SECONDS: Final = 900.0
_SAID_CHARACTERS: Final = 1000
_PODMAN_FOLDER: Final = "/var/tmp"  # noqa: S108 - what is made there is private
"""Where Podman keeps large temporary files."""
_MISSING: Final = ("no such file or directory", "not found")
_ENGINE_SAYS: Final = ("Error response from daemon", "OCI runtime", "Error: ", "error during connect")
_UNREACHABLE: Final = (
    "Cannot connect to",
    "error during connect",
    "unable to connect to",
    "permission denied while",
)


class ContainerEnvironment(ShellEnvironment):
    """A running container.

    Args:
        container: Its name or id.
        user: The user to be in it; without, the one that its image says.

    Raises:
        EngineError: The engine's command line isn't installed, or the engine doesn't answer.
        TargetError: There is no such container, or it isn't running.
    """

    engine: ClassVar[str]
    """The engine's command."""
    other: ClassVar[str]
    """The command of the engine that may have the container instead."""

    def __init__(self, container: str, *, user: str | None = None) -> None:
        if not container or container.startswith("-"):
            raise UsageError(f"'{container}' is not a container's name.")
        self._container = container
        self._user = user
        found = self._ask(["inspect", "--type", "container", container])
        if found.code != 0:
            said = found.error_text.strip()
            if any(words in said for words in _UNREACHABLE):
                raise EngineError(
                    f"{self.engine} doesn't answer: {said}",
                    hint=self._or_other("Is it running, and may you use it?"),
                )
            raise TargetError(
                f"{self.engine} has no container '{container}': {said}", hint=f"See: {self.engine} ps --all"
            )
        try:
            (self._facts,) = json.loads(found.stdout)
            self._id = str(self._facts["Id"])
            running = bool(self._facts["State"]["Running"])
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"'{self.engine} inspect {container}' prints what isn't understood.") from error
        if not running:
            raise TargetError(
                f"The container '{container}' isn't running.", hint=f"{self.engine} start {container}"
            )

    @property
    def name(self) -> str:
        """`docker:web`, say."""
        return f"{self.engine}:{self._container}"

    @property
    def identity(self) -> str:
        """The engine and the container's id."""
        return f"{self.engine}:{self._id}"

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout: float | None = None,
    ) -> process.Result:
        """Run a program in the container (see `Environment.run`)."""
        options = [] if stdin is None else ["--interactive"]
        for key, value in (env or {}).items():
            options += ["--env", f"{key}={value}"]
        if cwd is not None:
            options += ["--workdir", cwd]
        as_user = user if user is not None else self._user
        if as_user is not None:
            options += ["--user", as_user]
        result = self._ask(["exec", *options, self._id, *argv], stdin=stdin, timeout=timeout)
        if result.code in (1, 125, 126, 127, 255):
            self._check_started(argv[0], result)
        return result

    def attached(self, argv: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the engine's command that runs a program in it (see `Attachable.attached`)."""
        options = ["--interactive", *(["--tty"] if terminal else [])]
        if self._user is not None:
            options += ["--user", self._user]
        return [self.engine, "exec", *options, self._id, *argv]

    def put(self, data: bytes | IO[bytes], path: str, mode: int = 0o644) -> None:
        """Write a file (see `Environment.put`). Without a shell in the image, not atomically.

        It belongs to root where the engine has to write it.
        """
        try:
            super().put(data, path, mode)
        except process.ProgramMissingError:
            content = whole(data)
            folder, _, name = path.rpartition("/")
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), mode
                archive.addfile(member, io.BytesIO(content))
            self.put_tree([packed.getvalue()], folder or "/")

    def put_tree(self, tar: Iterable[bytes], path: str) -> None:
        """Unpack a tar by the engine (see `Environment.put_tree`)."""
        if self._hides(path):
            super().put_tree(tar, path)
            return
        with piped(tar) as stream, self._scratch() as env:
            arguments = self._copy_in(f"{self._id}:{path}")
            result = self._ask(arguments, stdin=stream, env=env, timeout=_COPY_SECONDS)
        if result.code != 0:
            raise TargetError(
                f"{self.name}: '{path}' can't be copied into: {result.error_text.strip()}",
                hint="Is there room, and is the folder writable?",
            )

    def copy_out(self, path: str) -> Iterator[bytes]:
        """Yield a tar of a file or folder (see `Readable.copy_out`)."""
        if self._hides(path):
            yield self.pack(path)
            return
        result = self._ask(self._copy_out(f"{self._id}:{path}"), timeout=_COPY_SECONDS)
        if result.code != 0:
            raise TargetError(f"{self.name}: '{path}' can't be read: {result.error_text.strip()}")
        yield result.stdout

    def main_program(self) -> str | None:
        """Return the program that the container runs (see `Readable.main_program`)."""
        path = self._facts.get("Path")
        return path if isinstance(path, str) and path.startswith("/") else None

    def variables(self) -> dict[str, str]:
        """Return the variables of the container's configuration (see `Configured.variables`)."""
        listed: list[str] = (self._facts.get("Config") or {}).get("Env") or []
        return dict(item.partition("=")[::2] for item in listed)

    @abstractmethod
    def _copy_in(self, place: str) -> list[str]:
        """Return the arguments that unpack standard input at a place, owners kept."""

    @abstractmethod
    def _copy_out(self, place: str) -> list[str]:
        """Return the arguments that pack a place to standard output, symlinks followed."""

    def _hides(self, path: str) -> bool:
        """Return whether the engine's copying doesn't reach what programs in the container see at a path."""
        del path
        return False

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[dict[str, str] | None]:
        """Give the environment to unpack standard input in, where that isn't this process's own."""
        yield None

    def _ask(
        self,
        arguments: Sequence[str],
        *,
        stdin: bytes | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> process.Result:
        argv = [self.engine, *arguments]
        try:
            return process.run(argv, stdin=stdin, env=env, timeout=timeout or _ASK_SECONDS, check=False)
        except process.ProgramMissingError as error:
            raise EngineError(
                f"The command '{self.engine}' is not installed here.",
                hint=self._or_other(
                    "Containers are reached by the engine's command line; its socket alone is not enough."
                ),
            ) from error

    def _or_other(self, hint: str) -> str:
        """Return a hint that also names the other engine, where that is here."""
        if shutil.which(self.other) is None:
            return hint
        return f"{hint} {self.other.capitalize()} is here: is the container {self.other}:{self._container}?"

    def _check_started(self, program: str, result: process.Result) -> None:
        """Raise if it was the engine that failed, and not the program."""
        # Docker says on standard output why it couldn't start a program.
        said = (result.error_text.strip() or result.text[:_SAID_CHARACTERS]).strip()
        if not said.startswith(_ENGINE_SAYS):
            return
        if result.code in (126, 127) and program in said and any(words in said for words in _MISSING):
            raise process.ProgramMissingError(f"{self.name}: '{program}' is not there.")
        if result.code in (1, 125, 126, 255):
            gone: type[CapsuleError] = EngineError if any(w in said for w in _UNREACHABLE) else TargetError
            raise gone(f"{self.name}: '{program}' can't be started: {said}")


class DockerContainer(ContainerEnvironment):
    """A running container of the Docker daemon that the `docker` command reaches."""

    engine = "docker"
    other = "podman"

    def _copy_in(self, place: str) -> list[str]:
        return ["cp", "-", place]

    def _copy_out(self, place: str) -> list[str]:
        return ["cp", "--follow-link", place, "-"]

    def _hides(self, path: str) -> bool:
        # `docker cp` writes into the file system below a tmpfs, which nothing in the container sees.
        mounts = [*(self._facts.get("HostConfig", {}).get("Tmpfs") or {})]
        named: list[dict[str, Any]] = self._facts.get("Mounts") or []
        mounts += [str(mount.get("Destination")) for mount in named if mount.get("Type") == "tmpfs"]
        return any(path == mount or path.startswith(f"{mount.rstrip('/')}/") for mount in mounts)


class PodmanContainer(ContainerEnvironment):
    """A running container of the user's Podman."""

    engine = "podman"
    other = "docker"

    def _copy_in(self, place: str) -> list[str]:
        return ["cp", "--archive=false", "-", place]

    def _copy_out(self, place: str) -> list[str]:
        return ["cp", place, "-"]

    @contextlib.contextmanager
    def _scratch(self) -> Iterator[dict[str, str] | None]:
        # Before 4.7 Podman keeps what it is given in a file of its own and leaves it behind: a whole bundle,
        # each time. A rootless one without XDG_RUNTIME_DIR finds its state by TMPDIR, which then has to stay.
        if os.geteuid() != 0 and not os.environ.get("XDG_RUNTIME_DIR"):
            yield None
            return
        usual = os.environ.get("TMPDIR") or _PODMAN_FOLDER
        where = usual if os.access(usual, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="capsule-podman-", dir=where) as folder:
            yield {**os.environ, "TMPDIR": folder}
