"""Docker, by its own Python package."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

import docker
import requests
import urllib3
from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from .buildlog import BuildLog
from .context import stream_context
from .layers import remove_layers
from .protocol import (
    LABEL,
    OUTPUT_LIMIT,
    BuildError,
    ContainerError,
    ContainerTimeoutError,
    EngineDownError,
    EngineForbiddenError,
    EngineInfo,
    EngineLostError,
    EngineMissingError,
    EngineTooOldError,
    EngineUnfitError,
    ImageError,
    Outcome,
    qualified,
    timeout_message,
)
from .service import knock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping

    from .protocol import ContainerSpec

OLDEST_API: Final = (1, 41)
"""Docker Engine 20.10."""

DEFAULT_ADDRESS: Final = "unix:///var/run/docker.sock"

_PROBE_SECONDS: Final = 15
_CALL_SECONDS: Final = 600
_COPY_CHUNK_BYTES: Final = 1 << 20
_START_HINT: Final = "Start it ('sudo systemctl start docker'), or use --container-cli podman."


class DockerEngine:
    """A Docker daemon that answered.

    Where it is comes from DOCKER_HOST, else from the Docker command's current context, else it is the
    usual socket.

    Raises:
        EngineMissingError: Docker isn't installed.
        EngineDownError: Its daemon doesn't answer.
        EngineForbiddenError: This user may not use its socket.
        EngineTooOldError: Its API is older than `OLDEST_API`.
        EngineUnfitError: What answers isn't Docker.
    """

    name = "docker"

    def __init__(self) -> None:
        settings = _settings()
        self._address = str(settings.get("base_url", DEFAULT_ADDRESS))
        _knock(self._address)
        try:
            self._client = docker.APIClient(
                **{**settings, "base_url": self._address},
                version="auto",
                timeout=_PROBE_SECONDS,
                use_ssh_client=True,
            )
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise EngineDownError(
                f"What listens at {self._address} doesn't answer as Docker does: {error}",
                hint="See whether its daemon works ('docker version'), and what DOCKER_HOST says.",
            ) from error
        try:
            self._version = self._client.version()
            self._check_version()
        except BaseException:
            self.close()
            raise
        self._client.timeout = _CALL_SECONDS

    def _check_version(self) -> None:
        parts = [str(part.get("Name", "")) for part in self._version.get("Components") or []]
        if any("podman" in part.lower() for part in parts):
            raise EngineUnfitError(
                f"What answers at {self._address} is Podman, not Docker.",
                hint="Use --container-cli podman, or point DOCKER_HOST at a Docker daemon.",
            )
        api = str(self._version.get("ApiVersion", "0.0"))
        if tuple(int(number) for number in api.split(".")) < OLDEST_API:
            raise EngineTooOldError(
                f"Docker Engine {self._version.get('Version')} at {self._address} is too old: its API is "
                f"{api}, and {'.'.join(map(str, OLDEST_API))} (Docker Engine 20.10) is needed.",
                hint="Update Docker, or use --container-cli podman.",
            )

    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        with _translated("Docker says nothing about itself"):
            said: dict[str, Any] = self._client.info()
        return EngineInfo(
            name=self.name,
            client_version=version("docker"),
            server_version=str(self._version["Version"]),
            api_version=str(self._version["ApiVersion"]),
            storage_driver=str(said.get("Driver", "")),
            storage_root=str(said.get("DockerRootDir", "")),
            oci_runtime=str(said.get("DefaultRuntime", "")),
            architecture=str(said.get("Architecture", "")),
            rootless=any("rootless" in option for option in said.get("SecurityOptions") or []),
            address=self._address,
        )

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
        """See `Engine.build`."""
        log = BuildLog(self.name, on_line)
        try:
            with self._held_response(), _translated("Docker refuses it"):
                return self._build(log, context, tag, labels, use_cache=use_cache, keep=keep)
        except (ContainerError, ImageError) as error:
            raise log.failure(error.message) from error
        except BuildError as error:
            if keep and log.container is not None:
                error.kept = (log.container,)
                error.hint = (
                    f"Its container is kept. To look into it: docker commit {log.container} kept && "
                    f"docker run --rm -it --network none --entrypoint SHELL kept; "
                    f"then: docker rm {log.container}"
                )
            raise

    def _build(
        self,
        log: BuildLog,
        context: Path,
        tag: str | None,
        labels: Mapping[str, str],
        *,
        use_cache: bool,
        keep: bool,
    ) -> str:
        # The stubs know files only; requests sends any iterable as it comes, in chunks.
        body: Any = stream_context(context)
        reports = self._client.build(
            fileobj=body,
            custom_context=True,
            dockerfile="Dockerfile",
            tag=tag,
            labels={**labels, LABEL: "1"},
            nocache=not use_cache,
            network_mode="none",
            rm=True,
            forcerm=not keep,
            use_config_proxy=False,
            decode=True,
            timeout=None,
        )
        for report in reports:
            log.add(report)
        return log.finish()

    @contextlib.contextmanager
    def _held_response(self) -> Iterator[None]:
        """Close the response of a streaming call when the block ends, however it ends.

        A closed connection is what makes the daemon end a build. Left to the garbage collector that would
        come late: the traceback of an interrupt holds the response.
        """
        held: list[requests.Response] = []

        def keep(response: requests.Response, *_: object, **__: object) -> None:
            held.append(response)

        hooks = self._client.hooks["response"]
        hooks.append(keep)
        try:
            yield
        finally:
            hooks.remove(keep)
            for response in held:
                response.close()

    def create(self, spec: ContainerSpec, *, name: str) -> str:
        """See `Engine.create`."""
        with _translated(f"Docker can't make a container of '{spec.image}'"):
            host = self._client.create_host_config(
                network_mode=spec.network,
                read_only=spec.read_only,
                tmpfs=dict.fromkeys(spec.tmpfs, "rw,exec,mode=1777") or None,
                binds=[f"{source}:{target}:{mode}" for source, target, mode in spec.binds] or None,
                # Without it SELinux keeps a container from files that its user may read.
                security_opt=["label=disable"] if spec.binds else None,
                # Of the drivers only this one keeps bytes that aren't UTF-8.
                log_config=docker.types.LogConfig(
                    type="local", config={"max-size": OUTPUT_LIMIT, "max-file": "1", "compress": "false"}
                ),
            )
            made = self._client.create_container(
                spec.image,
                entrypoint=[spec.argv[0]],
                command=list(spec.argv[1:]),
                environment=dict(spec.env),
                user=spec.user,
                working_dir=spec.workdir,
                host_config=host,
                labels={LABEL: "1"},
                name=name,
                use_config_proxy=False,
            )
        return str(made["Id"])

    def copy_in(self, container: str, path: str, tar: Iterable[bytes]) -> None:
        """See `Engine.copy_in`."""
        with _translated(f"Docker can't copy into '{path}'"):
            body: Any = iter(tar)
            self._client.put_archive(container, path, body)

    def copy_out(self, container: str, path: str) -> Generator[bytes, None, None]:
        """See `Engine.copy_out`."""
        with self._held_response(), _translated(f"Docker can't copy '{path}' out"):
            chunks, _ = self._client.get_archive(container, path, chunk_size=_COPY_CHUNK_BYTES)
            yield from chunks

    def start(self, container: str, timeout: float) -> Outcome:
        """See `Engine.start`."""
        with _translated("Docker can't start the container"):
            self._client.start(container)
            code = self._wait(container, timeout)
            if code is None:
                self._client.kill(container)
                self._wait(container, _CALL_SECONDS)
            stdout = self._client.logs(container, stdout=True, stderr=False)
            stderr = self._client.logs(container, stdout=False, stderr=True)
        if code is None:
            raise ContainerTimeoutError(timeout_message(timeout, stdout, stderr))
        return Outcome(code, stdout, stderr)

    def _wait(self, container: str, timeout: float) -> int | None:
        try:
            return int(self._client.wait(container, timeout=math.ceil(timeout))["StatusCode"])
        except requests.ReadTimeout:
            return None
        except requests.ConnectionError as error:
            # requests reports a read timeout in the middle of an answer as a broken connection.
            if error.args and isinstance(error.args[0], urllib3.exceptions.ReadTimeoutError):
                return None
            raise

    def remove_container(self, container: str) -> None:
        """See `Engine.remove_container`."""
        with _translated("Docker can't remove the container"), contextlib.suppress(docker.errors.NotFound):
            self._client.remove_container(container, v=True, force=True)

    def remove_image(self, image: str) -> None:
        """See `Engine.remove_image`."""
        with (
            _translated(f"Docker can't remove the image '{image}'"),
            contextlib.suppress(docker.errors.NotFound),
        ):
            self._client.remove_image(image)

    def has_image(self, reference: str) -> bool:
        """See `Engine.has_image`."""
        with _translated(f"Docker can't look for the image '{reference}'"):
            try:
                self._client.inspect_image(reference)  # type: ignore[no-untyped-call]  # so in the stubs
            except docker.errors.ImageNotFound:
                return False
        return True

    def pull(self, reference: str) -> None:
        """See `Engine.pull`."""
        with _translated(f"Docker can't pull '{reference}'", ImageError):
            for report in self._client.pull(qualified(reference), stream=True, decode=True):
                if "error" in report:
                    raise ImageError(f"Docker can't pull '{reference}': {report['error']}")

    def prune_build_cache(self) -> None:
        """See `Engine.prune_build_cache`."""
        with _translated("Docker can't remove the layers of earlier builds"):
            remove_layers(
                self._labelled_images,
                lambda image: self._client.remove_image(image, force=True),
                refusals=(docker.errors.APIError,),
            )

    def _labelled_images(self) -> set[str]:
        return {image["Id"] for image in self._client.images(all=True, filters={"label": LABEL})}

    def close(self) -> None:
        """See `Engine.close`."""
        self._client.close()


def _settings() -> dict[str, Any]:
    settings: dict[str, Any] = {**kwargs_from_env()}
    if "base_url" in settings:
        return settings
    name = os.environ.get("DOCKER_CONTEXT")
    try:
        chosen = ContextAPI.get_context(name)
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise EngineUnfitError(
            f"Docker's context can't be read: {error}", hint="See 'docker context ls', or set DOCKER_HOST."
        ) from error
    if chosen is None:
        raise EngineUnfitError(
            f"Docker's context '{name}' doesn't exist.",
            hint="See 'docker context ls', or unset DOCKER_CONTEXT.",
        )
    if chosen.Host:
        settings["base_url"] = chosen.Host
    if chosen.TLSConfig is not None:
        settings["tls"] = chosen.TLSConfig
    return settings


def _knock(address: str) -> None:
    """Find out why a socket on this machine can't be used, before the client reports it as one error."""
    where = urlparse(address.removeprefix("http+"))
    if where.scheme != "unix":
        return
    path = where.path or f"/{where.netloc}"
    try:
        knock(Path(path))
    except PermissionError as error:
        raise EngineForbiddenError(
            f"Docker is there, but this user may not use its socket {path}.",
            hint="Join the group that owns it ('sudo usermod -aG docker $USER', then log in again), "
            "or use --container-cli podman, which needs no group.",
        ) from error
    except FileNotFoundError as error:
        if "DOCKER_HOST" not in os.environ and not (shutil.which("dockerd") or shutil.which("docker")):
            raise EngineMissingError(
                "Docker is not installed.", hint="Install it, or use --container-cli podman."
            ) from error
        raise EngineDownError(
            f"Docker's daemon is not running: there is no socket {path}.", hint=_START_HINT
        ) from error
    except OSError as error:
        raise EngineDownError(
            f"Docker's daemon doesn't answer at {path}: {error.strerror or error}.", hint=_START_HINT
        ) from error


@contextlib.contextmanager
def _translated(what: str, refused: type[ContainerError | ImageError] = ContainerError) -> Iterator[None]:
    """Turn the client's errors into the project's own.

    Args:
        what: What couldn't be done, as the start of a sentence.
        refused: The error for what the daemon refuses.
    """
    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise ImageError(f"{what}: {error.explanation}") from error
    except docker.errors.APIError as error:
        raise refused(f"{what}: {error.explanation or error}") from error
    except (docker.errors.DockerException, requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise EngineLostError(
            f"{what}: its daemon stopped answering ({error}).", hint="See its log ('journalctl -u docker')."
        ) from error
