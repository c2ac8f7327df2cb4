"""Filling a setup root with a harness: by an install command, or from this machine; then sealing it.

npm's lifecycle scripts run as the classic npm ran them, for the install command that a person configured and
for it alone. A script can only start what can be started before sealing. So in an image without
`/usr/bin/env`, where no package's command can be, and wherever a script failed, the order is another one:
install without scripts, seal, then have npm run the scripts (`npm rebuild -g`), and seal what they made.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .commands import CLASSIC, WITHOUT_SCRIPTS, CapsuleRunner
from .diagnosis import install_error, is_script_failure
from .errors import CapsuleError, TargetError, UsageError
from .finding import state_file
from .probing import probe
from .scripts import SETUP, TIDY
from .sealing import seal
from .uploading import tree_tar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from .commands import Outcome
    from .diagnosis import SetUpError
    from .environment import Environment
    from .finding import Surroundings
    from .harness import Harness
    from .installing import Installed
    from .sealing import SealReport

BEGUN: Final = "begun"
FINISHED: Final = "finished"
"""How a setup root's note of a harness begins; the harness's digest and a token come behind."""

_SECONDS: Final = 120.0
_HOME: Final = ".home"
_WHEELHOUSE: Final = ".wheelhouse"
_NPM_CACHE: Final = ".cache/npm"
_PIP_CACHE: Final = ".cache/pip"
_CONTENT: Final = "_cacache"
"""The part of an npm cache that holds what was downloaded."""

_REBUILD: Final = ("npm", "rebuild", "-g")
_IS_FILLED: Final = 'for one in "$1"/*; do [ -e "$one" ] && exit 0; done; exit 1'
_IGNORES_SCRIPTS: Final = re.compile(r"--ignore-scripts\b(?!=false)")


class SetupRoot:
    """A setup root that is being filled with a harness.

    Args:
        harness: What is set up.
        environment: Where.
        capsule: The capsule that the setup root belongs to.
        around: What programs meet there.
        say: Is told what is done.

    Attributes:
        home: A folder that can serve as HOME.
        notes: What a person should know of how it went.
    """

    def __init__(
        self,
        harness: Harness,
        environment: Environment,
        capsule: Installed,
        around: Surroundings,
        say: Callable[[str, int, int], None],
    ) -> None:
        self._harness = harness
        self._environment = environment
        self._capsule = capsule
        self._around = around
        self._say = say
        self._token = secrets.token_hex(8)
        self.home = f"{capsule.setup_root}/{_HOME}"
        self.notes: list[str] = []

    def fill(self) -> SealReport:
        """Install or upload the harness, and seal the setup root.

        Raises:
            SetUpError: The install command failed; the message has what it printed.
            InputError: What is to be uploaded can't be read.
            TargetError: The setup root can't be made, written to or sealed.
        """
        harness = self._harness
        self._make()
        if harness.upload is not None:
            self._put(harness.upload, "")
            return self._seal()
        if harness.install_command is None:
            raise UsageError(f"The harness '{harness.entrypoint}' has no install command.")
        if harness.npm_cache is not None:
            self._put(_content_of(harness.npm_cache), f"{_NPM_CACHE}/{_CONTENT}")
        if harness.wheelhouse is not None:
            self._put(harness.wheelhouse, _WHEELHOUSE)
        return self._install(harness.install_command)

    def finish(self) -> None:
        """Write down that the harness is set up, and remove the package managers' caches.

        Raises:
            TargetError: That can't be written.
        """
        self._script(TIDY, f"{FINISHED} {self._written}", _NPM_CACHE, _PIP_CACHE, _WHEELHOUSE)

    @property
    def _written(self) -> str:
        return f"{self._harness.digest} {self._token}"

    def _make(self) -> None:
        cleared = [f"{_NPM_CACHE}/{_CONTENT}"] if self._harness.npm_cache is not None else []
        cleared += [_WHEELHOUSE] if self._harness.wheelhouse is not None else []
        made = [] if self._around.has_home else [_HOME]
        self._script(SETUP, f"{BEGUN} {self._written}", *cleared, "", *made)

    def _script(self, script: str, text: str, *arguments: str) -> None:
        command = ["/bin/sh", "-c", script, "set-up", self._capsule.setup_root]
        command += [state_file(self._harness), text, *arguments]
        result = self._environment.run(command, timeout=_SECONDS)
        if result.code != 0:
            said = result.error_text.strip() or f"the shell ended with status {result.code}"
            raise TargetError(f"{self._environment.name}: {said}")

    def _put(self, source: Path, place: str) -> None:
        """Put a folder or archive of this machine into a folder of the setup root."""
        target = probe(self._environment)
        folder = f"{self._capsule.setup_root}/{place}".rstrip("/")
        self._environment.put_tree(self._told(tree_tar(source, target.user, target.group)), folder)

    def _told(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        done = 0
        for piece in pieces:
            yield piece
            done += len(piece)
            self._say("put", done, 0)

    def _install(self, command: str | tuple[str, ...]) -> SealReport:
        has_scripts = "npm" in self._capsule.tools and not self._ignores_scripts(command)
        if self._around.has_env or not has_scripts:
            outcome = self._run(command, CLASSIC)
            if outcome.is_right:
                return self._seal()
            if not (has_scripts and is_script_failure(outcome)):
                raise self._error(outcome)
            self.notes.append(
                "A package's own script failed before sealing; npm rebuild ran the scripts behind it."
            )
        outcome = self._run(command, WITHOUT_SCRIPTS)
        if not outcome.is_right:
            raise self._error(outcome)
        first = self._seal()
        if not self._has_packages():
            return first
        outcome = self._run(_REBUILD, CLASSIC)
        if not outcome.is_right:
            raise self._error(
                replace(outcome, command=f"{outcome.command} (the scripts of what was installed)")
            )
        return self._seal().behind(first)

    def _has_packages(self) -> bool:
        """Return whether npm has installed anything into the setup root."""
        folder = f"{self._capsule.setup_root}/lib/node_modules"
        result = self._environment.run(["/bin/sh", "-c", _IS_FILLED, "look", folder], timeout=_SECONDS)
        return result.code == 0

    def _run(self, command: str | tuple[str, ...], npm_options: Mapping[str, str]) -> Outcome:
        self._say("run", 0, 0)
        harness = self._harness
        own = {_folded(name) for name in harness.install_env}
        options = {name: value for name, value in npm_options.items() if name not in own}
        if harness.npm_cache is not None:
            options["npm_config_offline"] = "true"
        runner = CapsuleRunner(self._environment, self._capsule, self._variables(), harness.install_timeout)
        return runner.run(command, options)

    def _variables(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        if not self._around.has_home:
            # npm doesn't start without a home, nor do some packages' scripts where it can't be written to.
            variables["HOME"] = self.home
        if self._harness.wheelhouse is not None:
            place = f"{self._capsule.setup_root}/{_WHEELHOUSE}"
            variables.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=place)
            variables.update(UV_NO_INDEX="1", UV_FIND_LINKS=place, UV_OFFLINE="1")
        return {**variables, **self._harness.install_env}

    def _ignores_scripts(self, command: str | tuple[str, ...]) -> bool:
        """Return whether the person who configured the command wants no lifecycle scripts."""
        text = command if isinstance(command, str) else " ".join(command)
        wishes = {_folded(name): value for name, value in self._harness.install_env.items()}
        return _IGNORES_SCRIPTS.search(text) is not None or wishes.get("npm_config_ignore_scripts") == "true"

    def _seal(self) -> SealReport:
        self._say("seal", 0, 0)
        report = seal(self._capsule, self._environment)
        self.notes += [f"'{item.path}' isn't sealed: {item.reason}" for item in report.failures]
        return report

    def _error(self, outcome: Outcome) -> SetUpError:
        """Return the error of a failed command; programs that can't be started unsealed are a part of it."""
        try:
            unsealed = seal(self._capsule, self._environment, dry_run=True).interpreters
        except CapsuleError:
            # What it is about is the command; that the tree can't be looked at either adds nothing.
            unsealed = ()
        return install_error(self._harness, outcome, self._environment, self._around, unsealed)


def _content_of(cache: Path) -> Path:
    """Return the part of an npm cache that is to be put into another one."""
    for folder in (cache / _CONTENT, cache):
        if folder.name == _CONTENT and folder.is_dir():
            return folder
    raise UsageError(
        f"'{cache}' is no npm cache: there is no '{_CONTENT}' in it.", hint="npm config get cache names one."
    )


def _folded(name: str) -> str:
    """Return an npm option's variable in its usual spelling."""
    return name.lower().replace("-", "_")
