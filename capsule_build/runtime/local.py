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

    def attached(self, argv: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command that runs a program here (see `Attachable.attached`)."""
        del terminal
        return [*argv] if self._is_whole else [self._chroot(), str(self._root), *argv]

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
        variables = {**os.environ, **(env or {})}
        if user is None and self._is_whole:
            folder = None if cwd is None else Path(cwd)
            return process.run(argv, stdin=stdin, env=variables, cwd=folder, timeout=timeout, check=False)
        chroot = self._chroot()
        command = [chroot, *([] if user is None else [f"--userspec={user}"]), str(self._root)]
        # chroot changes to its new root.
        command += [*argv] if cwd is None else ["/bin/sh", "-c", _CHANGE_FOLDER, "run", cwd, *argv]
        result = process.run(command, stdin=stdin, env=variables, timeout=timeout, check=False)
        if result.code == 127 and result.error_text.startswith(f"{chroot}: "):
            raise process.ProgramMissingError(f"{self.name}: '{argv[0]}' is not there.")
        return result

    @staticmethod
    def _chroot() -> str:
        # Looked for where this process looks, not where the program is to look.
        return shutil.which("chroot", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "chroot"

    @property
    def _is_whole(self) -> bool:
        return self._root == Path("/")
