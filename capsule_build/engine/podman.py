"""Podman, by its own Python package (see `podman_api`)."""

from __future__ import annotations

import contextlib
import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import requests
from podman.errors import PodmanError

from ..runtime.errors import EngineError
from .answerlines import AnswerLines
from .buildlog import BuildLog
from .context import stream_context
from .layers import remove_layers
from .podman_abort import ABORT_SECONDS, end_foreign, end_own
from .podman_api import CALL_SECONDS, GoneError, PodmanApi, cause, joined
from .protocol import (
    LABEL,
    OUTPUT_LIMIT,
    BuildError,
    ContainerError,
    ContainerTimeoutError,
    EngineDownError,
    EngineForbiddenError,
    EngineInfo,
    EngineMissingError,
    EngineTooOldError,
    EngineUnfitError,
    ImageError,
    Outcome,
    qualified,
    timeout_message,
)
from .service import PodmanService, knock, running_service
from .tarend import without_end_mark
from .working import WorkingContainers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from .protocol import ContainerSpec

OLDEST: Final = (4, 0)
"""Podman's API took its present form in 4.0."""

_PROBE_SECONDS: Final = 30.0
_COPY_CHUNK_BYTES: Final = 1 << 20

_NETWORK_DISABLED: Final = "1"
"""buildah's NetworkDisabled. The API takes the number; a word that it doesn't know, such as "none", silently
means the default, which is the host's network where no other is set up (seen with 4.3.1)."""

_DOCKER_FORMAT: Final = "application/vnd.docker.distribution.manifest.v2+json"
"""Podman's own image format drops SHELL and HEALTHCHECK without an error; Docker's keeps them."""


class PodmanEngine:
    """A Podman service that answered.

    It is where CONTAINER_HOST says. Else it is started for this object, and ended by `close`, also where the
    system or the user runs one: a service of its own can be ended with a build, and Podman 4.3's doesn't
    outlive a caller that hangs up in the middle of one. Where Podman itself isn't installed, a service that
    answers all the same (its socket may be mounted) is used.

    Raises:
        EngineMissingError: Podman isn't installed.
        EngineDownError: Its service doesn't answer, or can't be started.
        EngineTooOldError: It is older than `OLDEST`.
        EngineUnfitError: What answers isn't Podman.
    """

    name = "podman"

    def __init__(self) -> None:
        given = os.environ.get("CONTAINER_HOST")
        with contextlib.ExitStack() as opened:
            self._service: PodmanService | None = None
            self._address = given or self._own_or_running(opened)
            self._api = self._connect(given)
            opened.callback(self._api.close)
            self._said = self._introduce(given)
            self._opened = opened.pop_all()

    def _own_or_running(self, opened: contextlib.ExitStack) -> str:
        try:
            self._service = PodmanService()
        except EngineMissingError:
            address = running_service()
            if address is None:
                raise
            return address
        opened.callback(self._service.stop)
        return self._service.address

    def _connect(self, given: str | None) -> PodmanApi:
        try:
            if self._address.startswith("unix://"):
                knock(Path(self._address.removeprefix("unix://")))
            return PodmanApi(self._address)
        except PermissionError as error:
            raise EngineForbiddenError(
                f"Podman is there, but this user may not use its socket {self._address}.",
                hint="Unset CONTAINER_HOST: then Podman runs with this user's own rights.",
            ) from error
        except (PodmanError, ValueError, OSError) as error:
            raise EngineDownError(
                f"Podman doesn't answer at '{self._address}': {error}.", hint=_hint(given)
            ) from error

    def _introduce(self, given: str | None) -> dict[str, Any]:
        try:
            said = self._api.introduce(_PROBE_SECONDS)
            found = str(said["version"]["Version"])
            # Distributions add to it: 4.9.4-rhel, 3.0~rc1.
            numbers = tuple(int(part) for part in re.split(r"[.~-]", found)[:2])
        except (PodmanError, requests.RequestException) as error:
            raise EngineDownError(
                f"Podman's service at {self._address} doesn't answer: {cause(error)}",
                hint=_hint(given),
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise EngineUnfitError(
                f"What answers at {self._address} isn't Podman.", hint="See CONTAINER_HOST."
            ) from error
        if numbers < OLDEST:
            raise EngineTooOldError(
                f"Podman {found} at {self._address} is too old: {'.'.join(map(str, OLDEST))} is needed.",
                hint="Update Podman, or use --container-cli docker.",
            )
        return said

    def info(self) -> EngineInfo:
        """See `Engine.info`."""
        host, store = self._said["host"], self._said["store"]
        return EngineInfo(
            name=self.name,
            client_version=version("podman"),
            server_version=str(self._said["version"]["Version"]),
            api_version=str(self._said["version"]["APIVersion"]),
            storage_driver=str(store["graphDriverName"]),
            storage_root=str(store["graphRoot"]),
            oci_runtime=str(host["ociRuntime"]["name"]),
            architecture=str(host["arch"]),
            rootless=bool(host["security"]["rootless"]),
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
        """See `Engine.build`.

        A service that was started here is made to end the step that an interrupt meets. One that others use
        goes on with it, and cleans up behind it.
        """
        log = BuildLog(self.name, on_line)
        working = WorkingContainers(self.info())
        params = {
            "dockerfile": "Dockerfile",
            "networkmode": _NETWORK_DISABLED,
            "httpproxy": "false",
            "labels": json.dumps({**labels, LABEL: "1"}),
            "layers": "true",
            "nocache": str(not use_cache).lower(),
            "rm": "true",
            "forcerm": str(not keep).lower(),
            "outputformat": _DOCKER_FORMAT,
            **working.parameters(),
            **({"t": tag} if tag else {}),
        }
        answer = self._api.streamed(
            "Podman refuses it",
            "POST",
            "/build",
            params=params,
            data=stream_context(context),
            headers={"Content-Type": "application/x-tar"},
            timeout=(_PROBE_SECONDS, None),
        )
        lines = AnswerLines(answer)
        try:
            lines.start()
            for line in lines:
                if line:
                    log.add(json.loads(line))
            return log.finish()
        except (ContainerError, ImageError) as error:
            raise log.failure(error.message) from error
        except BaseException as error:
            if keep and isinstance(error, BuildError):
                lines.join(ABORT_SECONDS)
                error.kept = tuple(working.found())
                names = " ".join(error.kept)
                error.hint = (
                    f"Kept, to be looked into: podman mount {names}; then: podman rm --force {names}"
                    if names
                    else "'podman ps --all --external' lists what was kept."
                )
            else:
                self._end_build(error, lines, working)
            raise

    def _end_build(self, error: BaseException, answer: AnswerLines, working: WorkingContainers) -> None:
        """See to it that nothing is left of a build that failed or was interrupted."""
        try:
            if self._service is None:
                left = end_foreign(answer, working, self.remove_container)
            else:
                # No connection that is kept for the next call may lead to the service that ends here.
                self._api.close()
                left = end_own(self._service, answer, working, self.remove_container)
        except EngineError as failed:
            error.add_note(failed.message)
            left = working.found()
        if left:
            error.add_note(f"What the build worked in is still there: podman rm --force {' '.join(left)}")

    def create(self, spec: ContainerSpec, *, name: str) -> str:
        """See `Engine.create`."""
        mounts = [
            {"type": "tmpfs", "source": "tmpfs", "destination": path, "options": ["rw", "exec", "mode=1777"]}
            for path in spec.tmpfs
        ] + [
            {"type": "bind", "source": source, "destination": target, "options": ["rbind", mode]}
            for source, target, mode in spec.binds
        ]
        wanted = {
            "name": name,
            "image": spec.image,
            "entrypoint": [spec.argv[0]],
            "command": list(spec.argv[1:]),
            "env": dict(spec.env),
            # Docker sets neither; a program has to meet the same environment in both.
            "unsetenv": [name for name in ("TERM", "container") if name not in spec.env],
            "user": spec.user,
            "work_dir": spec.workdir,
            "netns": {"nsmode": spec.network},
            "read_only_filesystem": spec.read_only,
            # As with Docker: no entry in /etc/passwd for the user, no writable folders in a read-only root.
            "manage_password": False,
            "read_write_tmpfs": False,
            "httpproxy": False,
            "mounts": mounts,
            # Without it SELinux keeps a container from files that its user may read.
            "selinux_opts": ["disable"] if spec.binds else [],
            "labels": {LABEL: "1"},
            "log_configuration": {"driver": "k8s-file", "size": int(OUTPUT_LIMIT.removesuffix("m")) << 20},
        }
        what = f"Podman can't make a container of '{spec.image}'"
        try:
            response = self._api.call(
                what,
                "POST",
                "/containers/create",
                data=json.dumps({key: value for key, value in wanted.items() if value is not None}),
                headers={"Content-Type": "application/json"},
            )
        except ContainerError as error:
            # Podman reports a missing image as an error of its own, like any other.
            if self.has_image(spec.image):
                raise
            raise ImageError(f"{what}: there is no such image.") from error
        return str(response.json()["Id"])

    def copy_in(self, container: str, path: str, tar: Iterable[bytes]) -> None:
        """See `Engine.copy_in`."""
        what = f"Podman can't copy into '{path}'"
        # Docker refuses a folder that isn't there; Podman would make it.
        self._api.call(what, "HEAD", f"/containers/{container}/archive", params={"path": path})
        self._api.call(
            what,
            "PUT",
            f"/containers/{container}/archive",
            params={"path": path},
            data=without_end_mark(tar),
            headers={"Content-Type": "application/x-tar"},
        )

    def copy_out(self, container: str, path: str) -> Generator[bytes, None, None]:
        """See `Engine.copy_out`."""
        with self._api.streamed(
            f"Podman can't copy '{path}' out",
            "GET",
            f"/containers/{container}/archive",
            params={"path": path},
        ) as response:
            yield from response.iter_content(chunk_size=_COPY_CHUNK_BYTES)

    def start(self, container: str, timeout: float) -> Outcome:
        """See `Engine.start`."""
        what = "Podman can't start the container"
        self._api.call(what, "POST", f"/containers/{container}/start")
        code = self._api.wait(container, timeout)
        if code is None:
            self._api.call(what, "POST", f"/containers/{container}/kill", params={"signal": "SIGKILL"})
            self._api.wait(container, CALL_SECONDS)
        stdout, stderr = self._output(container, "stdout"), self._output(container, "stderr")
        if code is None:
            raise ContainerTimeoutError(timeout_message(timeout, stdout, stderr))
        return Outcome(code, stdout, stderr)

    def _output(self, container: str, stream: str) -> bytes:
        response = self._api.call(
            "Podman can't read the container's output",
            "GET",
            f"/containers/{container}/logs",
            params={"stdout": stream == "stdout", "stderr": stream == "stderr"},
        )
        return joined(response.content)

    def remove_container(self, container: str) -> None:
        """See `Engine.remove_container`."""
        with contextlib.suppress(GoneError):
            self._api.call(
                "Podman can't remove the container",
                "DELETE",
                f"/containers/{container}",
                params={"force": "true", "v": "true", "timeout": "0"},
                missing=GoneError,
            )

    def remove_image(self, image: str) -> None:
        """See `Engine.remove_image`."""
        with contextlib.suppress(GoneError):
            self._api.call(
                f"Podman can't remove the image '{image}'",
                "DELETE",
                f"/images/{quote(image, safe='')}",
                missing=GoneError,
            )

    def has_image(self, reference: str) -> bool:
        """See `Engine.has_image`."""
        try:
            self._api.call(
                f"Podman can't look for the image '{reference}'",
                "GET",
                f"/images/{quote(reference, safe='')}/exists",
                missing=GoneError,
            )
        except GoneError:
            return False
        return True

    def pull(self, reference: str) -> None:
        """See `Engine.pull`."""
        what = f"Podman can't pull '{reference}'"
        with self._api.streamed(
            what, "POST", "/images/pull", params={"reference": qualified(reference)}, refused=ImageError
        ) as response:
            for line in response.iter_lines():
                report = json.loads(line) if line else {}
                if report.get("error"):
                    raise ImageError(f"{what}: {report['error']}")

    def prune_build_cache(self) -> None:
        """See `Engine.prune_build_cache`."""
        remove_layers(self._labelled_images, self.remove_image, refusals=(ContainerError,))

    def _labelled_images(self) -> set[str]:
        response = self._api.call(
            "Podman can't list images",
            "GET",
            "/images/json",
            params={"all": "true", "filters": json.dumps({"label": [LABEL]})},
        )
        return {item["Id"] for item in response.json()}

    def close(self) -> None:
        """See `Engine.close`."""
        self._opened.close()


def _hint(given: str | None) -> str:
    if given is None:
        return "See whether 'podman info' works."
    return "CONTAINER_HOST names that address: start the service there, or unset it."
