"""From a harness's specification to an absolute path that runs, in an environment that nobody prepared.

    is it there, and does it work?   yes: done; nothing is downloaded or installed
      -> the capsule is installed, or found           (`installing`)
      -> the install command runs with it, or a tree is uploaded
      -> the setup root is sealed                     (`sealing`)
      -> the check runs, by the harness's absolute path, in the environment's own variables

Without a capsule's tag the install command runs natively, and nothing of capsules happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import TargetError, UsageError
from .finding import in_image, in_setup_root, look, names_of, try_out
from .harness import Strategy
from .installing import installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .environment import Environment
    from .harness import Harness
    from .registry import Registry
    from .sealing import SealReport
    from .store import SignatureCheck, Store

    Progress = Callable[[str, int, int], None]
    """Is told what is done, and how much of how much; 0 of 0 where that isn't known."""


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
        """Return it as JSON values: `path`, `is_new`, `sha256`, `setup_root`, `seal` (the report), `notes`."""
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
        InputError: The bundle can't be had, or isn't the registry lock's.
        ContractError: The bundle breaks its contract.
        TargetError: The environment can't take the capsule.
    """
    del store, replace, check_signature
    around = look(environment, *names_of(harness), "bash")
    candidates = in_image(harness, around)
    if harness.setup_capsule_tag is not None:
        if registry is None:
            raise UsageError("A harness with a capsule's tag needs a registry lock.")
        found = installed(harness.setup_capsule_tag, environment, registry=registry)
        if found is not None:
            candidates.append(in_setup_root(harness, found.setup_root, around))
    if progress is not None:
        progress("look", 0, 0)
    if harness.strategy in (Strategy.PREINSTALLED, Strategy.INSTALL_IF_MISSING):
        for candidate in candidates:
            if try_out(harness, candidate, environment).failure is None:
                return SetUp(candidate.path, is_new=False)
    raise TargetError(f"{environment.name}: '{harness.entrypoint}' is not there.")
