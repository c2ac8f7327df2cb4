"""Podman's API service, started for one run on a private socket and ended behind it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..runtime import process
from . import process_tree
from .limits import configured_files, merged_configuration, needed_here
from .protocol import EngineDownError, EngineMissingError, EngineUnfitError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_START_SECONDS: Final = 60
_KNOCK_SECONDS: Final = 5
_END_SECONDS: Final = 20
_PREFIX: Final = "capsule-build-podman-"
_LOCK: Final = "in-use"
_LONGEST_FOLDER: Final = 60
"""A Unix socket's path has at most 107 bytes (unix(7)), and the names below this folder are in it."""

_STEP_RUNNER: Final = "buildah-oci-runtime"
"""The process that runs a build's step. The step's own processes are its children."""
_RUNTIMES: Final = ("runc", "crun", "")
"""What is left alone of these: the runtime itself, and what has ended already."""
_PAUSE_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0


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
        self._folder = _PrivateFolder()
        try:
            self._socket = self._folder.path / "podman.sock"
            self.address = f"unix://{self._socket}"
            self._log = self._folder.path / "service.log"
            self._environment = service_environment(self._folder.path)
            self._start()
        except BaseException:
            self._folder.remove()
            raise
        try:
            self._await_answer()
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = process.start(self._argv(), env=self._environment, output=log)

    def _argv(self) -> list[str]:
        argv = ["podman", "system", "service", "--time=0", self.address]
        # The kernel then ends the service should this process be killed without a chance to do it.
        return ["setpriv", "--pdeathsig", "TERM", *argv] if shutil.which("setpriv") else argv

    def _await_answer(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while not answers(self._socket):
            ended = self._process.poll()
            if ended is not None or time.monotonic() > end:
                said = self._log.read_text(errors="backslashreplace").strip()[-2000:]
                raise EngineDownError(
                    "Podman's service "
                    + (f"ended with status {ended}" if ended is not None else "didn't answer in time")
                    + (f":\n{said}" if said else "."),
                    hint="'podman info' may say more.",
                )
            time.sleep(_PAUSE_SECONDS)

    def end_steps(self) -> None:
        """End the build steps that are running, for Podman goes on with them when its caller is gone.

        The programs of a step are killed, so that the step fails and the build cleans up as it does behind
        any step that fails. Podman's own processes are left alone: a signal to them can end the service too.
        """
        for runner in self._step_runners():
            for pid in process_tree.descendants(runner):
                if process_tree.program(pid) not in _RUNTIMES:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)

    def _step_runners(self) -> list[int]:
        started = process_tree.descendants(self._process.pid)
        return [pid for pid in started if process_tree.program(pid) == _STEP_RUNNER]

    def restart(self, may_end: Callable[[], bool], seconds: float) -> None:
        """End the service with all its builds, and start it anew at the same address.

        Args:
            may_end: Whether it may end now. It is stopped while this is asked, so what is found still holds
                when it is killed. That no build step is running is seen to as well.
            seconds: How long such a moment is waited for; then it is killed whatever it does.

        Raises:
            EngineDownError: It doesn't come up again.
        """
        end = time.monotonic() + seconds
        while self._process.poll() is None:
            self._signal(signal.SIGSTOP)
            try:
                self._await_standstill()
                if (not self._step_runners() and may_end()) or time.monotonic() > end:
                    self._kill()
                    break
            finally:
                self._signal(signal.SIGCONT)
            self.end_steps()
            time.sleep(_PAUSE_SECONDS)
        self._kill()
        # It is in the way of a new one.
        self._socket.unlink(missing_ok=True)
        self._start()
        self._await_answer()

    def _await_standstill(self) -> None:
        """Wait until a signal that was sent has reached all threads."""
        end = time.monotonic() + _STOP_SECONDS
        while not process_tree.stands_still(self._process.pid) and time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS / 10)

    def stop(self) -> None:
        """End the service and remove its private folder. A second call does nothing."""
        self._signal(signal.SIGTERM)
        end = time.monotonic() + _END_SECONDS
        while self._is_running():
            if time.monotonic() > end:
                self._kill()
                break
            time.sleep(_PAUSE_SECONDS)
        self._folder.remove()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        while self._is_running():
            time.sleep(_PAUSE_SECONDS)

    # Without root's rights the service may be a child of what was started, which doesn't pass signals on:
    # so all of the process group counts, which is theirs alone.

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _is_running(self) -> bool:
        # A process that ended and that nobody waited for is still listed, as a zombie.
        return self._process.poll() is None or any(
            item.group == self._process.pid and item.state != "Z"
            for item in process_tree.processes().values()
        )


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
    try:
        knock(path)
    except OSError:
        return False
    return True


def knock(path: Path) -> None:
    """Connect to a Unix socket and hang up.

    Raises:
        OSError: That isn't possible; the class says why not.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(_KNOCK_SECONDS)
        knocking.connect(str(path))


def running_service() -> str | None:
    """Return the address of a Podman service that the system or the user runs, if one answers."""
    if os.geteuid() == 0:
        folder = Path("/run")
    else:
        folder = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}")
    path = folder / "podman" / "podman.sock"
    return f"unix://{path}" if answers(path) else None


class _PrivateFolder:
    """A folder for the socket and for a build's context, which may be large: /tmp may be memory.

    It is locked while it is in use, so that one that a killed run left can be told, and goes with the next.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_temporary_folder()))
        self._lock = (self.path / _LOCK).open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        for path in self.path.parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if path != self.path and _is_abandoned(path):
                    shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _temporary_folder() -> str:
    for folder in (os.environ.get("TMPDIR"), "/var/tmp", "/tmp"):  # noqa: S108 - mkdtemp's is private
        if folder and len(folder) <= _LONGEST_FOLDER and os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise EngineUnfitError(
        "There is no folder for temporary files with a path short enough for a socket.",
        hint="Set TMPDIR to a folder with a short path.",
    )


def _is_abandoned(folder: Path) -> bool:
    status = folder.stat()
    # One that was made just now may not have its lock yet.
    if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _START_SECONDS:
        return False
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True
