"""From a harness's specification to an absolute path that runs, in an environment that nobody prepared.

    is it there, and does it work?   yes: done; nothing is downloaded or installed
      -> the capsule is installed, or found           (`installing`)
      -> the install command runs with it, or a tree is uploaded      (`setup_steps`)
      -> the setup root is sealed                     (`sealing`)
      -> the check runs, by the harness's absolute path, in the environment's own variables

Without a capsule's tag the install command runs natively, and nothing of capsules happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .commands import run_natively
from .diagnosis import install_error, missing_error, unusable_error
from .errors import UsageError
from .finding import Trial, failure_of, in_image, in_setup_root, look
from .harness import Strategy
from .installing import install, installed
from .locks import lock
from .setup_steps import BEGUN, FINISHED, SetupRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from .environment import Environment
    from .finding import Candidate, Surroundings
    from .harness import Harness
    from .installing import Installed
    from .registry import Registry
    from .sealing import SealReport
    from .store import SignatureCheck, Store

    Progress = Callable[[str, int, int], None]
    """Is told what is done, and how much of how much; 0 of 0 where that isn't known."""

_LOCK_SECONDS: Final = 900.0


@dataclass(frozen=True)
class SetUp:
    """A harness that is there, and works.

    Attributes:
        path: Its absolute path in the environment.
        is_new: Whether this call installed it.
        sha256: The digest of the capsule whose setup root it lies in; `None`: it is the environment's own.
        setup_root: That setup root.
        seal: What sealing it did; `None`: nothing was sealed by this call.
        notes: What a person should know.
    """

    path: str
    is_new: bool
    sha256: str | None = None
    setup_root: str | None = None
    seal: SealReport | None = None
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return its attributes as JSON values; `seal` is the report."""
        seal = None if self.seal is None else self.seal.as_json()
        return {**vars(self), "seal": seal, "notes": list(self.notes)}


def set_up(
    harness: Harness,
    environment: Environment,
    *,
    registry: Registry | None = None,
    store: Store | None = None,
    replace: bool = False,
    progress: Progress | None = None,
    check_signature: SignatureCheck | None = None,
) -> SetUp:
    """Set a harness up, or find that it is there.

    Args:
        harness: What it is, as `load_harness` reads it.
        environment: Where to.
        registry: Which bundle a tag stands for; only needed for a harness that has a tag.
        store: Where bundles are kept; only needed for a harness that has a tag.
        replace: Whether a capsule of another digest, in the store or at the install root, is replaced.
        progress: Is told what is done: `look`, `download`, `install`, `put`, `run`, `seal`, `check`.
        check_signature: Is given the bundle and its signature before the bundle is used.

    Raises:
        SetUpError: The harness isn't there (`preinstalled`), or can't be installed, or doesn't work.
        UsageError: There is no such tag, it lacks a tool, or `registry` and `store` are missing.
        InputError: The bundle can't be had, or isn't the registry lock's; or what is uploaded can't be read.
        ContractError: The bundle breaks its contract.
        TargetError: The environment can't take the capsule.
    """
    say = progress or _quiet
    finder = _Finder(harness, environment, registry)
    if harness.strategy in (Strategy.PREINSTALLED, Strategy.INSTALL_IF_MISSING):
        say("look", 0, 0)
        there = finder.find()
        if there is not None:
            return there
        if harness.strategy is Strategy.PREINSTALLED:
            raise missing_error(environment.name, harness, finder.around, finder.trials)
    tag = harness.setup_capsule_tag
    if tag is None:
        with _lock(harness, environment):
            return _natively(finder, say)
    if registry is None or store is None:
        raise UsageError(f"The harness's capsule '{tag}' needs a registry lock and a store.")
    capsule = install(
        tag,
        environment,
        registry=registry,
        store=store,
        needs=harness.needs,
        replace=replace,
        progress=progress,
        check_signature=check_signature,
    )
    before = finder.look(capsule.setup_root).state
    with _lock(harness, environment):
        return _with_capsule(finder, capsule, before, say)


class _Finder:
    """Looks for a harness, and remembers what was tried and why it wasn't taken."""

    def __init__(self, harness: Harness, environment: Environment, registry: Registry | None) -> None:
        self.harness = harness
        self.environment = environment
        self.registry = registry
        self.trials: list[Trial] = []
        self.around: Surroundings

    def look(self, setup_root: str = "") -> Surroundings:
        """Look around anew."""
        self.around = look(self.environment, self.harness, setup_root)
        return self.around

    def find(self) -> SetUp | None:
        """Return the harness where it is there and works: the image's own first, then a setup root's."""
        found = self.first(in_image(self.harness, self.look()))
        if found is not None:
            return SetUp(found.path, is_new=False)
        tag = self.harness.setup_capsule_tag
        if tag is None or self.registry is None:
            return None
        capsule = installed(tag, self.environment, registry=self.registry)
        return None if capsule is None else self.find_installed(capsule)

    def find_installed(self, capsule: Installed) -> SetUp | None:
        """Return the harness of a setup root, unless a set-up of it was begun and didn't finish."""
        root = capsule.setup_root
        around = self.look(root)
        if around.state.startswith(BEGUN):
            return None
        found = self.first(in_setup_root(self.harness, around, root))
        if found is None:
            return None
        notes = _notes(around, capsule)
        return SetUp(found.path, is_new=False, sha256=capsule.sha256, setup_root=root, notes=notes)

    def first(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """Return the first candidate that works."""
        for candidate in candidates:
            failure = failure_of(self.harness, candidate, self.environment)
            if failure is None:
                return candidate
            self.trials.append(Trial(candidate, failure))
        return None


def _natively(finder: _Finder, say: Progress) -> SetUp:
    """Run an install command as it stands, with nothing of capsules."""
    harness, environment = finder.harness, finder.environment
    if harness.strategy is Strategy.INSTALL_IF_MISSING:
        # Somebody else may have installed it while this one waited.
        there = finder.find()
        if there is not None:
            return there
    if harness.install_command is None:
        raise UsageError(f"The harness '{harness.entrypoint}' has no install command.")
    say("run", 0, 0)
    outcome = run_natively(environment, harness.install_command, harness.install_env, harness.install_timeout)
    if not outcome.is_right:
        raise install_error(harness, outcome, environment, finder.look())
    finder.trials.clear()
    say("check", 0, 0)
    found = finder.first(in_image(harness, finder.look()))
    if found is None:
        raise unusable_error(harness, finder.trials, environment, finder.around)
    return SetUp(found.path, is_new=True)


def _with_capsule(finder: _Finder, capsule: Installed, before: str, say: Progress) -> SetUp:
    """Install a harness into a setup root, unless somebody did while this one waited."""
    harness, environment = finder.harness, finder.environment
    setup_root = capsule.setup_root
    state = finder.look(setup_root).state
    is_others = state != before and state.startswith(f"{FINISHED} {harness.digest}")
    if harness.strategy is Strategy.INSTALL_IF_MISSING or is_others:
        there = finder.find_installed(capsule)
        if there is not None:
            return there
    finder.trials.clear()
    root = SetupRoot(harness, environment, capsule, finder.around, say)
    report = root.fill()
    say("check", 0, 0)
    around = finder.look(setup_root)
    # What the command put elsewhere counts, too: it may have its own idea of where programs belong.
    found = finder.first([*in_setup_root(harness, around, setup_root), *in_image(harness, around)])
    if found is None:
        raise unusable_error(harness, finder.trials, environment, around, report, root.home)
    root.finish()
    notes = (*_notes(around, capsule), *root.notes)
    return SetUp(found.path, True, capsule.sha256, setup_root, report, notes)


def _notes(around: Surroundings, capsule: Installed) -> tuple[str, ...]:
    """Return what whoever starts a harness of a capsule should know."""
    notes = list(capsule.notes)
    if not around.commands.get("bash"):
        shell = f"{capsule.root}/libexec/bash"
        notes.append(f"There is no bash on PATH: a harness that wants one is started with SHELL={shell}.")
    return tuple(notes)


def _lock(harness: Harness, environment: Environment) -> AbstractContextManager[None]:
    """Hold the lock of set-ups of an environment; another one's install command may take its time."""
    return lock(f"{environment.identity} (set-up)", timeout=harness.install_timeout + _LOCK_SECONDS)


def _quiet(what: str, done: int, total: int) -> None:
    """Say nothing."""
    del what, done, total
