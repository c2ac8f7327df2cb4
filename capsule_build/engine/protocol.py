"""What a container engine is to this project: few operations, the same for Docker and Podman.

A build never has a network. A container is always removed, also after an error or an interrupt: use
`container`, which sees to that.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from ..runtime.errors import CapsuleError, EngineError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from pathlib import Path

LABEL: Final = "org.agentcompass.capsule-build"
"""On each image and container that this project makes: how they are found again."""

OUTPUT_LIMIT: Final = "64m"
"""How much of a container's output an engine keeps. A program that prints for ever fills no disk."""

_NAME: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?{_NAME}(?:/{_NAME})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?"
)


class EngineMissingError(EngineError):
    """The engine isn't installed."""


class EngineDownError(EngineError):
    """The engine is installed, but nothing answers at its address."""


class EngineForbiddenError(EngineError):
    """The engine's socket is there, but this user may not use it."""


class EngineTooOldError(EngineError):
    """The engine answers, but its version lacks what a build needs."""


class EngineUnfitError(EngineError):
    """What answers isn't the engine that was asked for, or can't run containers on this machine."""


class EngineLostError(EngineError):
    """The engine stopped answering in the middle of its work."""


class ImageError(InputError):
    """An image isn't there, or can't be pulled."""


class ContainerError(CapsuleError):
    """A container can't be made, started, read or removed."""


class ContainerTimeoutError(ContainerError):
    """A container ran longer than it was given, and was killed."""


class BuildError(CapsuleError):
    """A step of a build failed.

    Attributes:
        step: The step that failed, as the engine numbers and prints it; empty when none had begun.
        log_tail: The last lines that the build printed, the oldest first.
        kept: The containers of the build that are still there, since that was asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        step: str,
        log_tail: tuple[str, ...],
        kept: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.step = step
        self.log_tail = log_tail
        self.kept = kept


@dataclass(frozen=True)
class EngineInfo:
    """What an engine says about itself.

    Attributes:
        name: `docker` or `podman`.
        client_version: Version of the Python package that talks to it.
        server_version: Version of the engine.
        api_version: Version of its API.
        storage_driver: What it keeps layers with (`overlay2`, `vfs`...).
        storage_root: Where it keeps them, on the engine's machine.
        oci_runtime: What starts its containers (`runc`, `crun`).
        architecture: The engine's machine, in the engine's words.
        rootless: Whether it runs without root's rights.
        address: Where it answers.
    """

    name: str
    client_version: str
    server_version: str
    api_version: str
    storage_driver: str
    storage_root: str
    oci_runtime: str
    architecture: str
    rootless: bool
    address: str


@dataclass(frozen=True)
class ContainerSpec:
    """A container to be made.

    Attributes:
        image: An image's name or id. It must be there already.
        argv: The whole command; the image's entry point doesn't count. The program's path is absolute,
            since an image may have no PATH.
        env: Environment variables on top of the image's own.
        user: `uid` or `uid:gid`; without, the image's own.
        workdir: Working folder; it must exist in the image.
        network: `none`, or the `host`'s own.
        read_only: Whether the root file system can't be written to. `copy_in` isn't possible then.
        tmpfs: Absolute paths that are empty writable file systems in memory, for all users.
        binds: Folders or files of the engine's machine: (there, in the container, mode).
    """

    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    workdir: str | None = None
    network: Literal["none", "host"] = "none"
    read_only: bool = False
    tmpfs: tuple[str, ...] = ()
    binds: tuple[tuple[str, str, Literal["ro", "rw"]], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a container's program left: its exit status and its output, byte for byte."""

    code: int
    stdout: bytes
    stderr: bytes


class Engine(Protocol):
    """A container engine that answered when it was opened."""

    @property
    def name(self) -> str:
        """`docker` or `podman`."""

    def info(self) -> EngineInfo:
        """Return what the engine says about itself."""

    def build(
        self,
        context: Path,
        *,
        tag: str | None,
        labels: Mapping[str, str],
        use_cache: bool = True,
        keep: bool = False,
        on_line: Callable[[str], None],
    ) -> str:
        """Build `context/Dockerfile` without a network and return the image's id.

        The folder is sent as a stream, with owners, modes and times normalised, so that the engine's
        cache depends on contents alone. When the build fails or is interrupted, its containers are
        ended and removed.

        Args:
            context: The folder; hard links and symbolic links in it are fine.
            tag: A name for the image.
            labels: Labels for the image, beside `LABEL`.
            use_cache: Whether layers of earlier builds are used.
            keep: Whether the container of a step that failed stays, to be looked into; the error then
                names it and says how.
            on_line: Called with each line of the build's log as it comes.

        Raises:
            BuildError: A step failed.
            EngineLostError: The engine stopped answering.
        """

    def create(self, spec: ContainerSpec, *, name: str) -> str:
        """Make a container without starting it, and return its id.

        Raises:
            ImageError: The image isn't there.
            ContainerError: The engine refuses.
        """

    def copy_in(self, container: str, path: str, tar: Iterable[bytes]) -> None:
        """Unpack a tar stream into the folder `path`, which must exist, of a container, started or not.

        Raises:
            ContainerError: The folder isn't there, or can't be written to.
        """

    def copy_out(self, container: str, path: str) -> Generator[bytes, None, None]:
        """Yield a tar stream of the file or folder `path` of a container, started or not.

        `path` itself is no symbolic link: Podman would follow it, Docker not.
        Members start with the path's last component. Owners and modes are as the engine gives them.

        Who may not read it to its end closes it: Docker doesn't remove a container that is being read.

        Raises:
            ContainerError: The path isn't there.
        """

    def start(self, container: str, timeout: float) -> Outcome:
        """Start a container, wait until it ends, and return what it left.

        Args:
            container: The container, which hasn't been started before.
            timeout: Seconds after which it is killed.

        Raises:
            ContainerError: The program isn't there, or can't be started.
            ContainerTimeoutError: It was killed for its time.
        """

    def remove_container(self, container: str) -> None:
        """End and remove a container and its anonymous volumes; one that isn't there is fine."""

    def remove_image(self, image: str) -> None:
        """Remove an image; one that isn't there is fine."""

    def has_image(self, reference: str) -> bool:
        """Return whether the engine holds an image of that name or id."""

    def pull(self, reference: str) -> None:
        """Fetch an image from its registry.

        Raises:
            ImageError: It can't be had.
        """

    def prune_build_cache(self) -> None:
        """Remove each image and layer that carries `LABEL` and isn't in use by a running container.

        Layers are found only where they carry the label: a stage has to set it in its first step.
        """

    def close(self) -> None:
        """End the connection, and the engine where it was started for it."""


@contextlib.contextmanager
def container(engine: Engine, spec: ContainerSpec) -> Iterator[str]:
    """Make a container for the time of a block, and remove it behind it whatever happens.

    The name is chosen here, so that a container whose making was interrupted is removed as well. An
    error in the block is never hidden by one of the removal, which is then noted on it.

    Yields:
        The container's id.
    """
    name = f"capsule-build-{uuid.uuid4().hex}"
    try:
        yield engine.create(spec, name=name)
    except BaseException as error:
        try:
            engine.remove_container(name)
        except CapsuleError as second:
            error.add_note(f"Then the container '{name}' could not be removed: {second.message}")
        raise
    engine.remove_container(name)


def check_reference(reference: str) -> None:
    """Check that a text can be an image's name, tag, digest or id, so that no engine is asked for nothing.

    The grammar is that of the OCI distribution project's references.

    Raises:
        UsageError: It can't.
    """
    if not _REFERENCE.fullmatch(reference):
        raise UsageError(
            f"'{reference}' is not an image's reference.",
            hint="One reads [HOST[:PORT]/]NAME[:TAG][@DIGEST], with NAME in lower case, as debian:12.",
        )


def qualified(reference: str) -> str:
    """Return an image's reference with its registry and tag, as Docker completes it.

    Podman asks a person which registry a short name means, and fails where there is no terminal.
    """
    first, slash, _ = reference.partition("/")
    if not slash:
        reference = f"docker.io/library/{reference}"
    elif not ("." in first or ":" in first or first == "localhost"):
        reference = f"docker.io/{reference}"
    if "@" not in reference and ":" not in reference.rpartition("/")[2]:
        reference += ":latest"
    return reference


def timeout_message(timeout: float, stdout: bytes, stderr: bytes) -> str:
    """Return what is said of a container that was killed for its time, with the end of its output."""
    said = (stderr or stdout)[-2000:].decode("utf-8", "backslashreplace").strip()
    return f"The container didn't end within {timeout:g} s and was killed." + (f"\n{said}" if said else "")
