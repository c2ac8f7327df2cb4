"""This machine as an environment, or the root file system of another one that lies on it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING

from . import process
from .environment import ShellEnvironment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CHANGE_FOLDER = 'cd "$1" && shift && exec "$@"'


class LocalEnvironment(ShellEnvironment):
    """This machine.

    Args:
        root: A folder with the root file system of a container or machine to be, which takes the capsule;
            programs then run by `chroot`, for which the caller must be root.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = Path(root).resolve()

    @property
    def name(self) -> str:
        """`local`, with the folder where that isn't `/`."""
        return "local" if self._is_whole else f"local:{self._root}"

    @property
    def identity(self) -> str:
        """The root folder's place on this machine."""
        return f"local:{self._root}"

    def local_path(self, path: str) -> str:
        """Return where a path of the environment is for this process."""
        return path if self._is_whole else str(self._root / path.lstrip("/"))

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
        """Run a program here (see `Environment.run`)."""
        command = list(argv)
        folder = None if cwd is None else Path(cwd)
        if user is not None or not self._is_whole:
            # chroot changes to its new root.
            if cwd is not None:
                command = ["/bin/sh", "-c", _CHANGE_FOLDER, "run", cwd, *command]
            as_user = [] if user is None else [f"--userspec={user}"]
            # Not as the variables for the program say.
            chroot = shutil.which("chroot", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "chroot"
            command = [chroot, *as_user, str(self._root), *command]
            folder = None
        result = process.run(
            command, stdin=stdin, env={**os.environ, **(env or {})}, cwd=folder, timeout=timeout, check=False
        )
        if folder is None and command != list(argv) and result.code == 127:
            raise process.ProgramMissingError(f"{self.name}: '{argv[0]}' is not there.")
        return result

    @property
    def _is_whole(self) -> bool:
        return self._root == Path("/")
