"""Podman's API service, started for one run on a private socket and ended behind it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..runtime import process
from .limits import configured_files, merged_configuration, needed_here
from .protocol import EngineDownError, EngineMissingError, EngineUnfitError

if TYPE_CHECKING:
    from collections.abc import Mapping

_START_SECONDS: Final = 60
_END_SECONDS: Final = 20
_LONGEST_SOCKET_PATH: Final = 100
"""A Unix socket's path has at most 107 bytes (unix(7)); some are left for the name."""

_BUILD_RUNNER: Final = b"buildah-oci-runtime"
"""The process that runs a build's step. Ended by SIGTERM it ends the step and the build cleans up."""


class PodmanService:
    """A running `podman system service`.

    Attributes:
        address: Where it answers, as a `unix://` URL.

    Raises:
        EngineMissingError: Podman, or the runtime that this machine needs, isn't installed.
        EngineDownError: The service didn't come up.
    """

    def __init__(self) -> None:
        if shutil.which("podman") is None:
            raise EngineMissingError(
                "Podman is not installed.",
                hint="Install it ('sudo apt-get install podman runc' on Debian), "
                "or use --container-cli docker.",
            )
        self._folder = _private_folder()
        try:
            self.address = f"unix://{self._folder}/podman.sock"
            self._log = self._folder / "service.log"
            environment = service_environment(self._folder)
            with self._log.open("wb") as log:
                self._process = process.start(self._argv(), env=environment, output=log)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self._await_answer()
        except BaseException:
            self.stop()
            raise

    def _argv(self) -> list[str]:
        argv = ["podman", "system", "service", "--time=0", self.address]
        # The kernel then ends the service should this process be killed without a chance to do it.
        return ["setpriv", "--pdeathsig", "TERM", *argv] if shutil.which("setpriv") else argv

    def _await_answer(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while not answers(Path(self.address.removeprefix("unix://"))):
            ended = self._process.poll()
            if ended is not None or time.monotonic() > end:
                said = self._log.read_text(errors="backslashreplace").strip()[-2000:]
                raise EngineDownError(
                    "Podman's service "
                    + (f"ended with status {ended}" if ended is not None else "didn't answer in time")
                    + (f":\n{said}" if said else "."),
                    hint="'podman info' may say more.",
                )
            time.sleep(0.05)

    def end_builds(self) -> None:
        """End the build steps that are running, for Podman goes on with them when its caller is gone."""
        for pid in _descendants(self._process.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] == _BUILD_RUNNER:
                    os.kill(pid, signal.SIGTERM)

    def stop(self) -> None:
        """End the service and remove its private folder. A second call does nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def service_environment(folder: Path) -> Mapping[str, str]:
    """Return the environment for a service whose temporary files lie in `folder`.

    A CONTAINERS_CONF of the user's own is left as it is.

    Raises:
        EngineMissingError: This machine needs runc, and it isn't there.
    """
    environment = {**os.environ, "TMPDIR": str(folder)}
    needs = needed_here()
    if not needs or "CONTAINERS_CONF" in os.environ:
        return environment
    if needs.get("engine", {}).get("runtime") == "runc" and shutil.which("runc") is None:
        raise EngineMissingError(
            "This machine has hybrid cgroups, where Podman's usual runtime (crun) doesn't run, "
            "and runc is not installed.",
            hint="Install it ('sudo apt-get install runc' on Debian).",
        )
    path = folder / "containers.conf"
    files = configured_files(Path.home(), root=os.geteuid() == 0)
    path.write_text(merged_configuration(files, needs), encoding="utf-8")
    environment["CONTAINERS_CONF"] = str(path)
    return environment


def answers(path: Path) -> bool:
    """Return whether something listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(5)
        try:
            knocking.connect(str(path))
        except OSError:
            return False
    return True


def running_service() -> str | None:
    """Return the address of a Podman service that the system or the user runs, if one answers."""
    if os.geteuid() == 0:
        folder = Path("/run")
    else:
        folder = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    path = folder / "podman" / "podman.sock"
    return f"unix://{path}" if answers(path) else None


def _private_folder() -> Path:
    """Make a folder for the socket and for a build's context, which may be large: /tmp may be memory."""
    for parent in (os.environ.get("TMPDIR"), "/var/tmp", "/tmp"):  # noqa: S108 - mkdtemp's is private
        if parent and len(parent) < _LONGEST_SOCKET_PATH - 40 and os.access(parent, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix="capsule-build-podman-", dir=parent))
    raise EngineUnfitError(
        "There is no folder for temporary files with a path short enough for a socket.",
        hint="Set TMPDIR to a folder with a short path.",
    )


def _descendants(ancestor: int) -> list[int]:
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # proc(5): the name in parentheses may hold anything; the parent is the second field behind it.
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    level = {ancestor}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += sorted(level)
    return found
